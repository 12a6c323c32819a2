//! What becomes of calls that are malformed, cut, or hold what looks like markup.

use serde_json::json;

use super::Piece;
use super::call_tests::reads_as;
use super::tests::{call, format, parse, parse_all, text};

/// Each text stays text.
fn stays_text(cases: &[(&str, &str)]) {
    for (family, answer) in cases {
        assert_eq!(parse(family, answer), [text(answer)], "{family}");
    }
}

/// The end of the answer ends a call whose closing marker is missing.
#[test]
fn closing_markers_may_be_missing() {
    let cases = [
        (
            "json",
            "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"x\"}}\n",
        ),
        (
            "function_xml",
            "<tool_call>\n<function=search>\n<parameter=query>\nx\n</parameter>\n</function>",
        ),
        (
            "function_xml",
            "<tool_call>\n<function=search>\n<parameter=query>\nx\n</parameter>\n",
        ),
        (
            "function_xml",
            "<tool_call>\n<function=search>\n<parameter=query>\nx\n</parameter>\n</tool_call>",
        ),
        (
            "function_xml",
            "<tool_call>\n<function=search>\n<parameter=query>\nx\n</function>\n</tool_call>",
        ),
        (
            "function_xml",
            "<function=search>\n<parameter=query>\nx\n</parameter>\n</function>\n</tool_call>",
        ),
        (
            "glm",
            "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>x</arg_value>\n",
        ),
        (
            "kimi",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>{\"query\": \"x\"}",
        ),
        (
            "kimi",
            "<|tool_call_begin|>search:12<|tool_call_argument_begin|>{\"query\": \"x\"}<|tool_call_end|>",
        ),
        ("gemma", "<|tool_call>call:search{query:<|\"|>x<|\"|>}"),
        ("pythonic", "<|tool_call_start|>[search(query=\"x\")]"),
        (
            "minimax",
            "<invoke name=\"search\"><parameter name=\"query\">x</parameter></invoke>",
        ),
    ];
    reads_as(&cases, "search", &json!({"query": "x"}));
}

/// The end of a parameter is missing: another one of the tool begins in a line of its own.
#[test]
fn a_parameter_ends_where_the_next_one_begins() {
    let answer = "<tool_call>\n<function=search>\n<parameter=limit>\n5\n<parameter=query>\nx\n<parameter=y> a <parameter=tags>\n</parameter>\n</function>\n</tool_call>";
    let arguments = json!({"limit": 5, "query": "x\n<parameter=y> a <parameter=tags>"});
    assert_eq!(parse("function_xml", answer), [call("search", arguments)]);
}

#[test]
fn texts_may_hold_what_looks_like_markup() {
    let content = "if a < b: print('</parameter>', {\"a\": [1]}) # </tool_call>, x";
    let quoted = content.replace('"', "\\\"");
    let cases = [
        (
            "json",
            format!(
                "<tool_call>\n{{\"name\": \"write\", \"arguments\": {{\"content\": \"{quoted}\"}}}}\n</tool_call>"
            ),
        ),
        (
            "function_xml",
            format!(
                "<tool_call>\n<function=write>\n<parameter=content>\n{content}\n</parameter>\n</function>\n</tool_call>"
            ),
        ),
        (
            "glm",
            format!(
                "<tool_call>write\n<arg_key>content</arg_key>\n<arg_value>{content}</arg_value>\n</tool_call>"
            ),
        ),
        (
            "minimax",
            format!(
                "<minimax:tool_call>\n<invoke name=\"write\">\n<parameter name=\"content\">{content}</parameter>\n</invoke>\n</minimax:tool_call>"
            ),
        ),
        (
            "minicpm",
            format!(
                "<function name=\"write\"><param name=\"content\"><![CDATA[{content}]]></param></function>"
            ),
        ),
        (
            "gemma",
            format!("<|tool_call>call:write{{content:<|\"|>{content}<|\"|>}}<tool_call|>"),
        ),
        (
            "pythonic",
            format!("<|tool_call_start|>[write(content=\"{quoted}\")]<|tool_call_end|>"),
        ),
        (
            "mistral",
            format!("[TOOL_CALLS]write[ARGS]{{\"content\": \"{quoted}\"}}"),
        ),
        (
            "kimi_k3",
            format!(
                "<|open|>tools<|sep|><|open|>call tool=\"write\"<|sep|><|open|>argument key=\"content\" type=\"string\"<|sep|>{content}<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
            ),
        ),
    ];
    let cases: Vec<(&str, &str)> = cases
        .iter()
        .map(|(family, answer)| (*family, answer.as_str()))
        .collect();
    reads_as(&cases, "write", &json!({"content": content}));
}

/// A call that does not parse takes no other one with it.
#[test]
fn a_malformed_call_is_text_beside_others() {
    let good = call("ping", json!({}));
    let cases = [
        (
            "json",
            "<tool_call>{\"name\": 3}</tool_call>",
            "<tool_call>{\"name\": \"ping\"}</tool_call>",
        ),
        (
            "function_xml",
            "<tool_call>\n<function=>\n</function>\n</tool_call>",
            "<tool_call>\n<function=ping>\n</function>\n</tool_call>",
        ),
        (
            "kimi_k3",
            "<|open|>call index=\"1\"<|sep|><|close|>call<|sep|>",
            "<|open|>call tool=\"ping\"<|sep|><|close|>call<|sep|>",
        ),
        (
            "kimi_k3",
            "<|open|>call tool=\"x\"<|sep|><|open|>json<|sep|>{not json<|close|>json<|sep|><|close|>call<|sep|>",
            "<|open|>call tool=\"ping\"<|sep|><|close|>call<|sep|>",
        ),
        (
            "minimax",
            "<invoke name=\"\"></invoke>",
            "<invoke name=\"ping\"></invoke>",
        ),
        (
            "minicpm",
            "<function name=\"f\">?</function>",
            "<function name=\"ping\"></function>",
        ),
        (
            "gemma",
            "<|tool_call>call:f{a}<tool_call|>",
            "<|tool_call>call:ping{}<tool_call|>",
        ),
        (
            "mistral",
            "[TOOL_CALLS]f[ARGS]{\"a\"}",
            "[TOOL_CALLS]ping[ARGS]{}",
        ),
        (
            "kimi",
            "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>[]<|tool_call_end|>",
            "<|tool_call_begin|>functions.ping:1<|tool_call_argument_begin|>{}<|tool_call_end|>",
        ),
    ];
    for (family, bad, answer) in cases {
        assert_eq!(parse(family, bad), [text(bad)], "{family}");
        let both = [bad, answer].concat();
        assert_eq!(parse(family, &both), [text(bad), good.clone()], "{family}");
        let both = [answer, bad].concat();
        assert_eq!(parse(family, &both), [good.clone(), text(bad)], "{family}");
    }
}

#[test]
fn other_text_is_no_call() {
    stays_text(&[
        ("json", "<tool_call>[]</tool_call>"),
        (
            "json",
            "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
        ),
        ("glm", "<tool_call>unknown"),
        ("glm", "<tool_call>f<arg_key>a</arg_key></tool_call>"),
        ("function_xml", "The <function=...> tag, or <function=a b>."),
        ("minicpm", "random text that is not a tool call"),
        ("pythonic", "<|tool_call_start|>[f(1)]<|tool_call_end|>"),
        (
            "pythonic",
            "<|tool_call_start|>[f(x=London)]<|tool_call_end|>",
        ),
        ("llama", "{\"answer\": 42}"),
        ("llama", "{\"name\": \"Bob\", \"age\": 3}"),
        ("llama", "[1, 2, 3]"),
        ("llama", "Here: {\"name\": \"ping\", \"parameters\": {}}"),
        ("llama", "<|python_tag|>print(1)"),
        (
            "mistral",
            "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": \"{\"}]",
        ),
    ]);
}

/// What was cut comes back, and the answer counts as unfinished.
#[test]
fn a_call_cut_in_the_middle_is_text() {
    for (family, answer) in [
        ("json", "Sure.\n<tool_call>{\"na"),
        (
            "minicpm",
            "Sure.\n<function name=\"get_weather\"><param name=\"city\">To",
        ),
        ("glm", "Sure.\n<tool_call>ping"),
        ("mistral", "Sure. [TOOL_CALLS]f[ARGS]{\"a\": "),
    ] {
        let (pieces, unfinished) = parse_all(&format(family), "", answer, true);
        assert_eq!(pieces, [text(answer)], "{family}");
        assert!(unfinished.call && !unfinished.reasoning, "{family}");
    }
    let answer = "<|open|>tools<|sep|><|open|>call tool=\"ping\"<|sep|><|close|>call<|sep|><|open|>call tool=\"cut\"<|sep|><|open|>argument key=\"x\" type=\"num";
    let (pieces, unfinished) = parse_all(&format("kimi_k3"), "", answer, true);
    assert_eq!(pieces[0], call("ping", json!({})));
    assert!(matches!(&pieces[1..], [Piece::Text(text)] if text.ends_with("type=\"num")));
    assert!(unfinished.call);
}
