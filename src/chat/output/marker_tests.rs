//! Reasoning and text, and what lies between them.

use serde_json::json;

use super::tests::{call, format, parse, parse_all, reasoning, text, tools};
use super::{OutputFormat, OutputParser, Piece};

const CALL: &str = "<tool_call>{\"name\": \"ping\"}</tool_call>";

fn ping() -> Piece {
    call("ping", json!({}))
}

#[test]
fn reasoning_is_told_from_text() {
    for (name, answer) in [
        ("think", "<think>\nhm\n</think>\n\nHello\n"),
        ("longcat_think", "<longcat_think>hm</longcat_think>Hello\n"),
        ("think_tokens", "<|think:start|>hm<|think:end|>Hello\n"),
        ("seed_think", "<seed:think>hm</seed:think>Hello\n"),
        ("mistral_think", "[THINK]hm[/THINK]Hello\n"),
        (
            "cohere_think",
            "<|START_THINKING|>hm<|END_THINKING|>Hello\n",
        ),
        ("gemma_channel", "<|channel>thought\nhm\n<channel|>Hello\n"),
        (
            "kimi_k3",
            "<|open|>response<|sep|>hm<|close|>response<|sep|>Hello\n",
        ),
        (
            "harmony",
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hello\n",
        ),
    ] {
        let expected = match name {
            "kimi_k3" => vec![text("hmHello\n")],
            _ => vec![reasoning("hm"), text("Hello\n")],
        };
        assert_eq!(parse(name, answer), expected, "{name}");
    }
}

#[test]
fn a_prompt_may_have_opened_the_reasoning() {
    let format = format("json+think");
    for (prompt, opened) in [
        ("<|im_start|>assistant\n<think>\n", true),
        ("<|im_start|>assistant\n<think>", true),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", false),
        (
            "<|im_start|>user\nWhat is <think>?<|im_end|>\n<|im_start|>assistant\n",
            false,
        ),
        ("x", false),
    ] {
        let (pieces, _) = parse_all(&format, prompt, "hm\n</think>\n\nHello", false);
        let expected = match opened {
            true => vec![reasoning("hm"), text("Hello")],
            false => vec![text("hm\n</think>\n\nHello")],
        };
        assert_eq!(pieces, expected, "{prompt}");
        assert_eq!(
            format.reasoning_closing(prompt),
            opened.then_some("</think>")
        );
        let parser = OutputParser::new(&format, &tools(), prompt);
        assert_eq!(parser.reasoning_is_open(), opened, "{prompt}");
    }
}

#[test]
fn reasoning_that_a_prompt_continues_is_open() {
    let format = OutputFormat {
        special_tokens: ["<|im_start|>".to_owned(), "<|im_end|>".to_owned()].into(),
        ..format("json+think")
    };
    for (prompt, opened) in [
        ("<|im_start|>assistant\n<think>\nI wonder", true),
        (
            "<|im_start|>user\n<think>\nI wonder<|im_end|>\n<|im_start|>assistant\n",
            false,
        ),
    ] {
        assert_eq!(
            format.reasoning_closing(prompt).is_some(),
            opened,
            "{prompt}"
        );
    }
}

#[test]
fn open_reasoning_is_known_while_the_text_arrives() {
    let mut parser = OutputParser::new(&format("json+think"), &tools(), "");
    let mut open = Vec::new();
    for piece in ["<thi", "nk>", "hm", "</thi", "nk>", "Hello"] {
        parser.push(piece);
        open.push(parser.reasoning_is_open());
    }
    assert_eq!(open, [false, true, true, true, false, false]);
}

#[test]
fn unfinished_reasoning_is_reported() {
    let (pieces, unfinished) = parse_all(&format("json+think"), "", "<think>\nhm </th", true);
    assert_eq!(pieces, [reasoning("hm </th")]);
    assert!(unfinished.reasoning && !unfinished.call);
}

/// A call inside the reasoning is a call, and ends it.
#[test]
fn a_call_interrupts_reasoning() {
    let answer = format!("<think>hm {CALL}");
    assert_eq!(parse("json+think", &answer), [reasoning("hm"), ping()]);
    let answer = format!("<think>hm {CALL}\n</think>\n\nHello");
    assert_eq!(
        parse("json+think", &answer),
        [reasoning("hm"), ping(), text("Hello")]
    );
    let answer = "<think>a <tool_call> tag, </think>Hello";
    assert_eq!(
        parse("json+think", answer),
        [reasoning("a <tool_call> tag,"), text("Hello")]
    );
}

#[test]
fn markers_are_stripped_and_what_is_between_is_kept() {
    assert_eq!(
        parse("json", &format!("hi {CALL} bye")),
        [text("hi"), ping(), text("bye")]
    );
    assert_eq!(parse("json", &[CALL, CALL].concat()), [ping(), ping()]);
    assert_eq!(
        parse("json", &format!("{CALL}\n{CALL}\n")),
        [ping(), ping()]
    );
    assert_eq!(
        parse("mistral", "hello[TOOL_CALLS]f[ARGS]{}"),
        [text("hello"), call("f", json!({}))]
    );
    assert_eq!(
        parse("mistral", "hello[TOOL_CALLS]body"),
        [text("hello[TOOL_CALLS]body")]
    );
}

/// Held back is no more than what may become a marker, with the white space before it.
#[test]
fn text_is_given_out_at_once() {
    let mut parser = OutputParser::new(&format("json+think"), &tools(), "");
    for (arrives, given) in [
        ("Hello", "Hello"),
        (" ", ""),
        ("you <", " you"),
        ("tool", ""),
        ("s>", " <tools>"),
        ("\n\n<", ""),
        ("think", ""),
        ("ing", "\n\n<thinking"),
    ] {
        let pieces = parser.push(arrives);
        let expected: Vec<Piece> = [text(given)]
            .into_iter()
            .filter(|_| !given.is_empty())
            .collect();
        assert_eq!(pieces, expected, "{arrives:?}");
    }
    let (rest, _) = parser.finish(false);
    assert_eq!(rest, []);
}

#[test]
fn plain_text_is_never_held_back() {
    let mut parser = OutputParser::new(&format("plain"), &tools(), "");
    for arrives in ["<tool_call>", "{\"name\": \"ping\"}", " ", "</"] {
        assert_eq!(parser.push(arrives), [text(arrives)]);
    }
    assert_eq!(parser.finish(true).0, []);
}

#[test]
fn calls_in_pythons_notation_come_together() {
    let answer = "<|tool_call_start|>[get_time(location=\"Paris\"), grocery.order(items=[{\"name\": \"noodles\", \"organic\": true}])]<|tool_call_end|>";
    let items = json!({"items": [{"name": "noodles", "organic": true}]});
    assert_eq!(
        parse("pythonic", answer),
        [
            call("get_time", json!({"location": "Paris"})),
            call("grocery.order", items)
        ]
    );
}

#[test]
fn harmony_says_things_on_several_channels() {
    let answer = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>Let me see.<|end|>\
        <|start|>assistant<|channel|>analysis<|message|>more<|end|>\
        <|start|>assistant<|channel|>commentary to=functions.ping <|constrain|>json<|message|>{}";
    assert_eq!(
        parse("harmony", answer),
        [
            reasoning("hm"),
            text("Let me see."),
            reasoning("more"),
            ping()
        ]
    );
    // A model that does not keep to the format.
    assert_eq!(parse("harmony", "Hello"), [text("Hello")]);
    assert_eq!(
        parse("harmony", "assistants < all"),
        [text("assistants < all")]
    );
    // A call that is none.
    let bad = "<|channel|>commentary to=functions.ping<|message|>[1]";
    assert_eq!(parse("harmony", &format!("{bad}<|call|>")), [text(bad)]);
    // Inside a message that the prompt began.
    let prompt = "<|start|>assistant<|channel|>analysis<|message|>I";
    let (pieces, _) = parse_all(
        &format("harmony"),
        prompt,
        " see<|end|><|start|>assistant<|channel|>final<|message|>Yes",
        false,
    );
    assert_eq!(pieces, [reasoning(" see"), text("Yes")]);
    // Cut in a header: nobody said that.
    let (pieces, _) = parse_all(&format("harmony"), "", "<|channel|>anal", true);
    assert_eq!(pieces, []);
}

#[test]
fn names_of_formats_are_checked() {
    for name in [
        "json",
        "json+think",
        "think",
        "harmony",
        "plain",
        "kimi_k3+kimi_k3_think",
    ] {
        assert!(OutputFormat::by_name(name).is_some(), "{name}");
    }
    for name in ["", "jsonx", "json+", "+", "plain+think"] {
        assert!(OutputFormat::by_name(name).is_none(), "{name}");
    }
    assert_eq!(format("think").tool_call_opening(None), None);
}

/// A model's files may name the syntax, whatever its template shows.
#[test]
fn files_name_the_syntax() {
    let tokenizer = crate::tokenizer::tests::with_bos();
    let folder = tempfile::tempdir().unwrap();
    let template = "{{ messages[0].content }}{% if tools %}<tool_call>{% endif %}";
    std::fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
    for (config, opening) in [
        ("{}", "<tool_call>\n{\"name\": \""),
        (r#"{"tool_parser_type": "mistral"}"#, "[TOOL_CALLS]"),
        (
            r#"{"tool_parser_type": "qwen3_coder"}"#,
            "<tool_call>\n<function=",
        ),
        (
            r#"{"tool_parser_type": "unheard"}"#,
            "<tool_call>\n{\"name\": \"",
        ),
    ] {
        std::fs::write(folder.path().join("tokenizer_config.json"), config).unwrap();
        let template = crate::ChatTemplate::load(folder.path(), &tokenizer).unwrap();
        let format = OutputFormat::of(&template, &tokenizer);
        assert_eq!(
            format.tool_call_opening(None).as_deref(),
            Some(opening),
            "{config}"
        );
    }
}
