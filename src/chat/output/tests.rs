//! What texts of all families are taken apart into, however they arrive.

use serde_json::json;

use super::*;

/// The tools of all tests.
pub(in crate::chat) fn tools() -> Vec<Value> {
    let tool = |name: &str, properties: Value| {
        json!({"type": "function", "function": {"name": name,
            "parameters": {"type": "object", "properties": properties}}})
    };
    let number = json!({"type": "number"});
    let text = json!({"type": "string"});
    vec![
        tool("multiply", json!({"a": number, "b": number})),
        tool("get_current_temperature", json!({"location": text})),
        tool(
            "search",
            json!({"query": text, "limit": {"type": "integer"},
            "filters": {"type": "object"}, "tags": {"type": "array"}}),
        ),
        tool("write", json!({"filePath": text, "content": text})),
        tool("ping", json!({})),
    ]
}

/// What a text is taken apart into when it arrives in these pieces.
fn parse_pieces<'a>(
    format: &OutputFormat,
    tools: &[Value],
    prompt: &str,
    texts: impl IntoIterator<Item = &'a str>,
    is_cut: bool,
) -> (Vec<Piece>, Unfinished) {
    let mut parser = OutputParser::new(format, tools, prompt);
    let mut joined = Vec::new();
    let mut add = |pieces: Vec<Piece>| {
        for piece in pieces {
            match piece {
                Piece::Reasoning(text) => say(&mut joined, true, text),
                Piece::Text(text) => say(&mut joined, false, text),
                call @ Piece::ToolCall(_) => joined.push(call),
            }
        }
    };
    for text in texts {
        add(parser.push(text));
    }
    let (rest, unfinished) = parser.finish(is_cut);
    add(rest);
    (joined, unfinished)
}

fn characters(text: &str) -> Vec<&str> {
    let starts = text
        .char_indices()
        .map(|(at, character)| (at, character.len_utf8()));
    starts.map(|(at, length)| &text[at..at + length]).collect()
}

/// The same for the whole text, for every division in two, and for its characters, which must
/// all agree.
pub(super) fn parse_all(
    format: &OutputFormat,
    prompt: &str,
    text: &str,
    is_cut: bool,
) -> (Vec<Piece>, Unfinished) {
    let tools = tools();
    let whole = parse_pieces(format, &tools, prompt, [text], is_cut);
    for (at, _) in text.char_indices() {
        let (head, tail) = text.split_at(at);
        let divided = parse_pieces(format, &tools, prompt, [head, tail], is_cut);
        assert_eq!(divided, whole, "{head:?} and {tail:?}");
    }
    let single = parse_pieces(format, &tools, prompt, characters(text), is_cut);
    assert_eq!(single, whole, "the characters of {text:?}");
    whole
}

pub(super) fn format(name: &str) -> OutputFormat {
    OutputFormat::by_name(name).unwrap_or_else(|| panic!("no format {name}"))
}

/// What a whole answer is taken apart into.
pub(super) fn parse(name: &str, text: &str) -> Vec<Piece> {
    parse_all(&format(name), "", text, false).0
}

pub(super) fn call(name: &str, arguments: Value) -> Piece {
    let Value::Object(arguments) = arguments else {
        panic!("not an object: {arguments}");
    };
    Piece::ToolCall(ToolCall {
        name: name.to_owned(),
        arguments,
    })
}

pub(super) fn text(text: &str) -> Piece {
    Piece::Text(text.to_owned())
}

pub(super) fn reasoning(text: &str) -> Piece {
    Piece::Reasoning(text.to_owned())
}

/// For each family an answer that says something and calls two tools.
pub(in crate::chat) const ANSWERS: &[(&str, &str)] = &[
    (
        "json",
        "Sure.\n<tool_call>\n{\"name\": \"multiply\", \"arguments\": {\"a\": 12234585, \"b\": 48838483920}}\n</tool_call>\n<tool_call>\n{\"name\": \"get_current_temperature\", \"arguments\": {\"location\": \"London\"}}\n</tool_call>",
    ),
    (
        "cohere",
        "Sure.<|START_ACTION|>[\n{\"tool_call_id\": \"0\", \"tool_name\": \"multiply\", \"parameters\": {\"a\": 12234585, \"b\": 48838483920}},\n{\"tool_call_id\": \"1\", \"tool_name\": \"get_current_temperature\", \"parameters\": {\"location\": \"London\"}}\n]<|END_ACTION|>",
    ),
    (
        "granite",
        "Sure. <|tool_call|>[{\"name\": \"multiply\", \"arguments\": {\"a\": 12234585, \"b\": 48838483920}}, {\"name\": \"get_current_temperature\", \"arguments\": {\"location\": \"London\"}}]",
    ),
    (
        "nemotron",
        "Sure.\n<TOOLCALL>[{\"name\": \"multiply\", \"arguments\": {\"a\": 12234585, \"b\": 48838483920}}, {\"name\": \"get_current_temperature\", \"arguments\": {\"location\": \"London\"}}]</TOOLCALL>",
    ),
    (
        "function_xml",
        "Sure.\n\n<tool_call>\n<function=multiply>\n<parameter=a>\n12234585\n</parameter>\n<parameter=b>\n48838483920\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=get_current_temperature>\n<parameter=location>\nLondon\n</parameter>\n</function>\n</tool_call>",
    ),
    (
        "seed",
        "Sure.\n<seed:tool_call>\n<function=multiply>\n<parameter=a>12234585</parameter>\n<parameter=b>48838483920</parameter>\n</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=get_current_temperature>\n<parameter=location>London</parameter>\n</function>\n</seed:tool_call>",
    ),
    (
        "glm",
        "Sure.\n<tool_call>multiply\n<arg_key>a</arg_key>\n<arg_value>12234585</arg_value>\n<arg_key>b</arg_key>\n<arg_value>48838483920</arg_value>\n</tool_call>\n<tool_call>get_current_temperature<arg_key>location</arg_key><arg_value>London</arg_value></tool_call>",
    ),
    (
        "longcat",
        "Sure.\n<longcat_tool_call>multiply\n<longcat_arg_key>a</longcat_arg_key>\n<longcat_arg_value>12234585</longcat_arg_value>\n<longcat_arg_key>b</longcat_arg_key>\n<longcat_arg_value>48838483920</longcat_arg_value>\n</longcat_tool_call>\n<longcat_tool_call>{\"name\": \"get_current_temperature\", \"arguments\": {\"location\": \"London\"}}</longcat_tool_call>",
    ),
    (
        "minimax",
        "Sure.\n<minimax:tool_call>\n<invoke name=\"multiply\">\n<parameter name=\"a\">12234585</parameter>\n<parameter name=\"b\">48838483920</parameter>\n</invoke>\n<invoke name=\"get_current_temperature\">\n<parameter name=\"location\">London</parameter>\n</invoke>\n</minimax:tool_call>",
    ),
    (
        "minicpm",
        "Sure.\n<function name=\"multiply\"><param name=\"a\">12234585</param><param name=\"b\">48838483920</param></function>\n<function name=\"get_current_temperature\"><param name=\"location\"><![CDATA[London]]></param></function>",
    ),
    (
        "muse",
        "Sure.\n<atem:function_calls>\n<atem:invoke name=\"multiply\">\n<atem:parameter name=\"a\">12234585</atem:parameter>\n<atem:parameter name=\"b\">48838483920</atem:parameter>\n</atem:invoke>\n<atem:invoke name=\"get_current_temperature\">\n<atem:parameter name=\"location\">London</atem:parameter>\n</atem:invoke>\n</atem:function_calls>",
    ),
    (
        "deepseek_xml",
        "Sure.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"multiply\">\n<｜DSML｜parameter name=\"a\" string=\"false\">12234585</｜DSML｜parameter>\n<｜DSML｜parameter name=\"b\" string=\"false\">48838483920</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"get_current_temperature\">\n<｜DSML｜parameter name=\"location\" string=\"true\">London</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    ),
    (
        "gemma",
        "Sure.<|tool_call>call:multiply{a:12234585,b:48838483920}<tool_call|><|tool_call>call:get_current_temperature{location:<|\"|>London<|\"|>}<tool_call|>",
    ),
    (
        "function_gemma",
        "Sure.<start_function_call>call:multiply{a:12234585,b:48838483920}<end_function_call><start_function_call>call:get_current_temperature{location:<escape>London<escape>}<end_function_call>",
    ),
    (
        "kimi",
        "Sure.<|tool_calls_section_begin|><|tool_call_begin|>functions.multiply:0<|tool_call_argument_begin|>{\"a\": 12234585, \"b\": 48838483920}<|tool_call_end|><|tool_call_begin|>functions.get_current_temperature:1<|tool_call_argument_begin|>{\"location\": \"London\"}<|tool_call_end|><|tool_calls_section_end|>",
    ),
    (
        "deepseek",
        "Sure.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>multiply<｜tool▁sep｜>{\"a\": 12234585, \"b\": 48838483920}<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_current_temperature\n```json\n{\"location\": \"London\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    (
        "tool_calls",
        "Sure.<tool_calls>\n{\"name\": \"multiply\", \"arguments\": {\"a\": 12234585, \"b\": 48838483920}}\n{\"name\": \"get_current_temperature\", \"arguments\": {\"location\": \"London\"}}\n</tool_calls>",
    ),
    (
        "firefunction",
        "Sure. functools[{\"name\": \"multiply\", \"arguments\": {\"a\": 12234585, \"b\": 48838483920}}, {\"name\": \"get_current_temperature\", \"arguments\": {\"location\": \"London\"}}]",
    ),
    (
        "gigachat",
        "Sure.<|function_call|>{\"name\": \"multiply\", \"arguments\": {\"a\": 12234585, \"b\": 48838483920}}\n<|function_call|>{\"name\": \"get_current_temperature\", \"arguments\": {\"location\": \"London\"}}",
    ),
    (
        "kimi_k3",
        "<|open|>response<|sep|>Sure.<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool=\"multiply\" index=\"1\"<|sep|><|open|>argument key=\"a\" type=\"number\"<|sep|>12234585<|close|>argument<|sep|><|open|>argument key=\"b\" type=\"number\"<|sep|>48838483920<|close|>argument<|sep|><|close|>call<|sep|><|open|>call tool=\"get_current_temperature\" index=\"2\"<|sep|><|open|>json type=\"object\"<|sep|>{\"location\": \"London\"}<|close|>json<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>",
    ),
    (
        "llama",
        "Sure.<|python_tag|>{\"name\": \"multiply\", \"parameters\": {\"a\": 12234585, \"b\": 48838483920}}; {\"name\": \"get_current_temperature\", \"parameters\": {\"location\": \"London\"}}",
    ),
    (
        "mistral",
        "Sure.[TOOL_CALLS]multiply[ARGS]{\"a\": 12234585, \"b\": 48838483920}[TOOL_CALLS]get_current_temperature[CALL_ID]abcdef123[ARGS]{\"location\": \"London\"}",
    ),
    (
        "pythonic",
        "Sure.<|tool_call_start|>[multiply(a=12234585, b=48838483920), get_current_temperature(location=\"London\")]<|tool_call_end|>",
    ),
    (
        "harmony",
        "<|channel|>commentary<|message|>Sure.<|end|><|start|>assistant<|channel|>commentary to=functions.multiply <|constrain|>json<|message|>{\"a\": 12234585, \"b\": 48838483920}<|call|><|start|>assistant to=functions.get_current_temperature<|channel|>commentary json<|message|>{\"location\": \"London\"}",
    ),
];

#[test]
fn every_family_is_read_however_the_text_arrives() {
    for (name, answer) in ANSWERS {
        let expected = [
            text("Sure."),
            call(
                "multiply",
                json!({"a": 12_234_585, "b": 48_838_483_920_u64}),
            ),
            call("get_current_temperature", json!({"location": "London"})),
        ];
        assert_eq!(parse(name, answer), expected, "{name}");
    }
}

/// Cut anywhere, the calls that are whole are given, and all the rest of the text.
#[test]
fn a_cut_call_comes_back_as_text() {
    for (name, answer) in ANSWERS {
        let mut calls_before = 0;
        for (at, _) in answer.char_indices() {
            let head = &answer[..at];
            let (pieces, unfinished) = parse_pieces(&format(name), &tools(), "", [head], true);
            let calls = pieces
                .iter()
                .filter(|piece| matches!(piece, Piece::ToolCall(_)))
                .count();
            assert!(calls >= calls_before && calls <= 2, "{name}: {head}");
            calls_before = calls;
            if unfinished.call {
                assert!(
                    matches!(pieces.last(), Some(Piece::Text(_))),
                    "{name}: {head}"
                );
            }
        }
        let head = &answer[..answer.find("48838").unwrap_or(0)];
        let (pieces, unfinished) = parse_pieces(&format(name), &tools(), "", [head], true);
        assert!(unfinished.call, "{name}: {head}");
        let raw: String = pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.as_str(),
                other => panic!("{name}: {other:?}"),
            })
            .collect();
        let tail = &head[head.rfind("multiply").unwrap_or(0)..];
        assert!(raw.ends_with(tail), "{name}: {raw}");
    }
}

/// A turn that was begun for the model is read as if the model had written it.
#[test]
fn a_seeded_turn_yields_the_call() {
    for (name, answer) in ANSWERS {
        let format = format(name);
        for seed_name in [Some("multiply"), None] {
            let seed = format.tool_call_opening(seed_name).unwrap();
            let prompt = format!("<|start|>assistant{seed}");
            let rest = match *name {
                "json" | "tool_calls" | "gigachat" | "firefunction" | "nemotron" | "granite"
                | "cohere" | "llama" => match seed_name {
                    Some(_) => "{\"a\": 1, \"b\": 2}}]",
                    None => "multiply\", \"parameters\": {\"a\": 1, \"b\": 2}}]",
                },
                _ => {
                    let at = answer.find("multiply").unwrap();
                    let end = seed.find("multiply").map_or(0, |at| seed.len() - at);
                    &answer[at + end..]
                }
            };
            let (pieces, _) = parse_all(&format, &prompt, rest, false);
            assert!(
                matches!(pieces.first(), Some(Piece::ToolCall(call)) if call.name == "multiply" && call.arguments.len() == 2),
                "{name}, {seed_name:?}: {pieces:?}"
            );
            // What does not continue it comes back, without what was given.
            let (pieces, _) = parse_all(&format, &prompt, "\u{1}no call", false);
            assert_eq!(pieces, [text("\u{1}no call")], "{name}, {seed_name:?}");
        }
    }
}

#[test]
fn without_tools_nothing_is_a_call() {
    for (name, answer) in ANSWERS {
        let (pieces, _) = parse_pieces(&format(name), &[], "", [*answer], false);
        assert!(
            matches!(pieces.as_slice(), [Piece::Text(_)]),
            "{name}: {pieces:?}"
        );
    }
}

#[test]
fn markers_in_prose_are_prose() {
    for name in ANSWERS.iter().map(|(name, _)| *name) {
        if name == "harmony" {
            continue;
        }
        let syntax = tools::by_name(name).unwrap();
        for opening in syntax.openings() {
            for prose in [
                format!("Write {opening} first, then a call."),
                format!("Write {opening}"),
                format!("{opening}{opening} x y"),
            ] {
                assert_eq!(parse(name, &prose), [text(&prose)], "{name}");
            }
        }
    }
}
