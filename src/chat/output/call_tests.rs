//! How each family's calls are read.

use serde_json::{Value, json};

use super::tests::{call, parse, text};

/// Each text is nothing but this call.
pub(super) fn reads_as(cases: &[(&str, &str)], name: &str, arguments: &Value) {
    for (family, answer) in cases {
        assert_eq!(
            parse(family, answer),
            [call(name, arguments.clone())],
            "{family}: {answer}"
        );
    }
}

#[test]
fn two_numbers() {
    let cases = [
        (
            "function_gemma",
            "<start_function_call>call:multiply{a:12234585,b:48838483920}<end_function_call>",
        ),
        (
            "gemma",
            "<|tool_call>call:multiply{a:12234585,b:48838483920}<tool_call|>",
        ),
        (
            "glm",
            "<tool_call>{\"name\": \"multiply\", \"arguments\": {\"a\": 12234585, \"b\": 48838483920}}</tool_call>",
        ),
        (
            "glm",
            "<tool_call>multiply a=12234585 b=48838483920</tool_call>",
        ),
        (
            "glm",
            "<tool_call>multiply\n{\"a\": 12234585, \"b\": 48838483920}</tool_call>",
        ),
        (
            "glm",
            "<tool_call>multiply<arg_key>a</arg_key>\\n<arg_value>12234585</arg_value><arg_key>b</arg_key><arg_value>48838483920</arg_value></tool_call>",
        ),
        (
            "json",
            "<tool_call>{\"name\": \"multiply\", \"arguments\": {\"a\": 12234585, \"b\": 48838483920}}</tool_call>",
        ),
        (
            "json",
            "<tool_call>{'name': 'multiply', 'arguments': {'a': 12234585, 'b': 48838483920}}</tool_call>",
        ),
        (
            "json",
            "<tool_call>{\"name\": \"multiply\", \"arguments\": \"{\\\"a\\\": 12234585, \\\"b\\\": 48838483920}\"}</tool_call>",
        ),
        (
            "json",
            "<tool_call>{\"function\": {\"name\": \"multiply\", \"arguments\": {\"a\": 12234585, \"b\": 48838483920}}}}</tool_call>",
        ),
        (
            "minimax",
            "<minimax:tool_call><invoke name=\"multiply\">\n<parameter name=\"a\">12234585</parameter>\n<parameter name=\"b\">48838483920</parameter>\n</invoke></minimax:tool_call>",
        ),
        (
            "function_xml",
            "<tool_call><function=multiply>\n<parameter=a>\n12234585\n</parameter>\n<parameter=b>\n48838483920\n</parameter>\n</function></tool_call>",
        ),
        (
            "function_xml",
            "<tool_call>\n        <function=multiply>\n        <parameter=a>\n        12234585\n        </parameter>\n        <parameter=b>\n        48838483920\n        </parameter>\n        </function>\n</tool_call>",
        ),
        (
            "longcat",
            "<longcat_tool_call>{\"name\": \"multiply\", \"arguments\": {\"a\": 12234585, \"b\": 48838483920}}</longcat_tool_call>",
        ),
        (
            "pythonic",
            "<|tool_call_start|>[multiply(a=12234585, b=48838483920)]<|tool_call_end|>",
        ),
        (
            "mistral",
            "[TOOL_CALLS]multiply[ARGS]{\"a\": 12234585, \"b\": 48838483920}",
        ),
        (
            "mistral",
            "[TOOL_CALLS]multiply{\"a\": 12234585, \"b\": 48838483920}",
        ),
        (
            "mistral",
            "[TOOL_CALLS] [{\"name\": \"multiply\", \"arguments\": {\"a\": 12234585, \"b\": 48838483920}, \"id\": \"abcdefghi\"}]",
        ),
        (
            "mistral",
            "[TOOL_CALLS][{\"name\": \"multiply\", \"arguments\": \"{\\\"a\\\": 12234585, \\\"b\\\": 48838483920}\"}]",
        ),
        (
            "minicpm",
            "<function name=\"multiply\"><param name=\"a\">12234585</param><param name=\"b\">48838483920</param></function>",
        ),
        (
            "minicpm",
            "<functionname='multiply'><paramname=\"a\">12234585</param><param name=b>48838483920</param></function>",
        ),
        (
            "llama",
            "{\"name\": \"multiply\", \"parameters\": {\"a\": 12234585, \"b\": 48838483920}}",
        ),
        (
            "llama",
            "\n {\"type\": \"function\", \"name\": \"multiply\", \"parameters\": {\"a\": \"12234585\", \"b\": \"48838483920\"}}",
        ),
        ("llama", "[multiply(a=12234585, b=48838483920)]"),
        (
            "llama",
            "<|python_tag|>multiply.call(a=12234585, b=48838483920)",
        ),
        (
            "harmony",
            " to=functions.multiply<|channel|>commentary <|constrain|>json<|message|>{\"a\": 12234585, \"b\": 48838483920}<|call|>",
        ),
    ];
    reads_as(
        &cases,
        "multiply",
        &json!({"a": 12_234_585, "b": 48_838_483_920_u64}),
    );
}

#[test]
fn one_text() {
    let cases = [
        (
            "function_gemma",
            "<start_function_call>call:get_current_temperature{location:<escape>London<escape>}<end_function_call>",
        ),
        (
            "function_gemma",
            "<start_function_call>call:get_current_temperature{location:London}<end_function_call>",
        ),
        (
            "gemma",
            "<|tool_call>call:get_current_temperature{location:<|\"|>London<|\"|>}<tool_call|>",
        ),
        (
            "json",
            "<tool_call>\n{\"name\": \" get_current_temperature\\n\", \"arguments\": {\"location\": \"London\"}}\n</tool_call>",
        ),
        (
            "minimax",
            "<minimax:tool_call>\n<invoke name='get_current_temperature'>\n<parameter name='location'>London</parameter>\n</invoke>\n</minimax:tool_call>",
        ),
        (
            "function_xml",
            "<tool_call>\n<function=get_current_temperature\n>\n<parameter=location>London</parameter>\n</function>\n</tool_call>",
        ),
        (
            "longcat",
            "<longcat_tool_call>get_current_temperature<longcat_arg_key>location</longcat_arg_key>\n<longcat_arg_value>London</longcat_arg_value></longcat_tool_call>",
        ),
        (
            "pythonic",
            "<|tool_call_start|>[get_current_temperature(location='London')]<|tool_call_end|>",
        ),
        (
            "mistral",
            "[TOOL_CALLS]get_current_temperature [ARGS] {\"location\": \"London\"}",
        ),
    ];
    reads_as(
        &cases,
        "get_current_temperature",
        &json!({"location": "London"}),
    );
}

#[test]
fn no_arguments() {
    let cases = [
        ("json", "<tool_call>{\"name\": \"ping\"}</tool_call>"),
        (
            "json",
            "<tool_call>{\"name\": \"ping\", \"arguments\": null}</tool_call>",
        ),
        (
            "function_xml",
            "<tool_call>\n<function=ping>\n</function>\n</tool_call>",
        ),
        // The end of a tag is missing, and there is the end of a parameter that has none.
        ("function_xml", "<function=ping\n</parameter>\n</function>"),
        ("glm", "<tool_call>ping\n</tool_call>"),
        ("glm", "<tool_call>ping"),
        ("minicpm", "<function name=\"ping\"></function>"),
        (
            "minimax",
            "<minimax:tool_call>\n<invoke name=\"ping\">\n</invoke>\n</minimax:tool_call>",
        ),
        ("gemma", "<|tool_call>call:ping{}<tool_call|>"),
        ("pythonic", "<|tool_call_start|>[ping()]<|tool_call_end|>"),
        ("mistral", "[TOOL_CALLS]ping[ARGS]{}"),
        (
            "kimi_k3",
            "<|open|>tools<|sep|><|open|>call tool=\"ping\" index=\"1\"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
        ),
        (
            "harmony",
            "<|channel|>commentary to=functions.ping<|message|><|call|>",
        ),
    ];
    reads_as(&cases, "ping", &json!({}));
}

#[test]
fn white_space_of_texts_is_kept() {
    let content = "    def f():\n        pass\n";
    let cases = [
        (
            "function_xml",
            format!(
                "<tool_call>\n<function=write>\n<parameter=content>\n{content}\n</parameter>\n</function>\n</tool_call>"
            ),
        ),
        (
            "minicpm",
            format!(
                "<function name=\"write\"><param name=\"content\"><![CDATA[{content}]]></param></function>"
            ),
        ),
        (
            "glm",
            format!(
                "<tool_call>write<arg_key>content</arg_key><arg_value>{content}</arg_value></tool_call>"
            ),
        ),
        (
            "gemma",
            format!("<|tool_call>call:write{{content:<|\"|>{content}<|\"|>}}<tool_call|>"),
        ),
    ];
    let cases: Vec<(&str, &str)> = cases
        .iter()
        .map(|(family, answer)| (*family, answer.as_str()))
        .collect();
    reads_as(&cases, "write", &json!({"content": content}));
}

#[test]
fn values_in_pythons_notation() {
    let cases = [
        (
            "function_xml",
            "<tool_call><function=search><parameter=filters>{'category': 'books', 'in_stock': True}</parameter><parameter=tags>['fiction', 'new']</parameter></function></tool_call>",
        ),
        (
            "function_xml",
            "<tool_call><function=search><parameter=filters>{\"category\": \"books\", \"in_stock\": true}</parameter><parameter=tags>[\"fiction\", \"new\"]</parameter></function></tool_call>",
        ),
        (
            "pythonic",
            "<|tool_call_start|>[search(filters={'category': 'books', 'in_stock': True}, tags=[\"fiction\", 'new'])]<|tool_call_end|>",
        ),
        (
            "pythonic",
            "<|tool_call_start|>[search(filters={\"category\": \"books\", \"in_stock\": true}, tags=[\"fiction\", \"new\",],)]<|tool_call_end|>",
        ),
        (
            "gemma",
            "<|tool_call>call:search{filters:{category:<|\"|>books<|\"|>,in_stock:true},tags:[<|\"|>fiction<|\"|>,<|\"|>new<|\"|>]}<tool_call|>",
        ),
    ];
    let arguments =
        json!({"filters": {"category": "books", "in_stock": true}, "tags": ["fiction", "new"]});
    reads_as(&cases, "search", &arguments);
}

/// A value becomes what the schema asks for; where it cannot, it stays a text.
#[test]
fn values_get_the_types_of_the_schema() {
    for (value, limit) in [
        ("2.0", json!(2)),
        ("2", json!(2)),
        ("\"2\"", json!("\"2\"")),
        ("two", json!("two")),
        ("{bad", json!("{bad")),
    ] {
        let answer = format!(
            "<tool_call>\n<function=search>\n<parameter=query>\n007\n</parameter>\n<parameter=limit>\n{value}\n</parameter>\n</function>\n</tool_call>"
        );
        assert_eq!(
            parse("function_xml", &answer),
            [call("search", json!({"query": "007", "limit": limit}))]
        );
    }
    let answer = "<function name=\"write\"><param name=\"filePath\">a &amp; b</param><param name=\"content\">2025-06-15T10:30:00Z</param><param name=\"mode\">{\"x\": 1}</param></function>";
    let arguments =
        json!({"filePath": "a & b", "content": "2025-06-15T10:30:00Z", "mode": {"x": 1}});
    assert_eq!(parse("minicpm", answer), [call("write", arguments)]);
    let answer = "<tool_call>{\"name\": \"search\", \"arguments\": {\"limit\": 2.0, \"query\": \"3.10.5-beta\"}}</tool_call>";
    assert_eq!(
        parse("json", answer),
        [call("search", json!({"limit": 2, "query": "3.10.5-beta"}))]
    );
}

#[test]
fn gemma_writes_nested_values_and_several_calls() {
    let cases = [
        (
            "call:configure{settings:{enabled:true,name:<|\"|>test<|\"|>}}",
            "configure",
            json!({"settings": {"enabled": true, "name": "test"}}),
        ),
        (
            "call:tag{items:[<|\"|>foo<|\"|>,<|\"|>bar<|\"|>]}",
            "tag",
            json!({"items": ["foo", "bar"]}),
        ),
        (
            "call:search{query:<|\"|>hello world<|\"|>,limit:10,verbose:false}",
            "search",
            json!({"query": "hello world", "limit": 10, "verbose": false}),
        ),
        (
            "call:manim-video{mode:<|\"|>plan<|\"|>,prompt:<|\"|>explain KV caching<|\"|>}",
            "manim-video",
            json!({"mode": "plan", "prompt": "explain KV caching"}),
        ),
        (
            "call:skill_manage{content:<|\"|>use a dict like {key: value} in your code<|\"|>}",
            "skill_manage",
            json!({"content": "use a dict like {key: value} in your code"}),
        ),
        (
            "call:f{a:-1.5e3,b:null,c:,d:[],e:{}}",
            "f",
            json!({"a": -1500.0, "b": null, "c": "", "d": [], "e": {}}),
        ),
    ];
    for (body, name, arguments) in &cases {
        let answer = format!("<|tool_call>{body}<tool_call|>");
        assert_eq!(
            parse("gemma", &answer),
            [call(name, arguments.clone())],
            "{body}"
        );
    }
    let both = format!("<|tool_call>{}{}<tool_call|>", cases[2].0, cases[0].0);
    let expected = [2, 0].map(|index: usize| call(cases[index].1, cases[index].2.clone()));
    assert_eq!(parse("gemma", &both), expected);
}

#[test]
fn kimi_k3_types_its_arguments() {
    let answer = "<|open|>tools<|sep|><|open|>call tool=\"echo&amp;log\" index=\"1\"<|sep|>\
        <|open|>argument key=\"query\" type=\"string\"<|sep|>{\"not\": \"json\"}<|close|>argument<|sep|>\
        <|open|>argument key=\"limit\" type=\"number\"<|sep|>5<|close|>argument<|sep|>\
        <|open|>argument key=\"safe\" type=\"boolean\"<|sep|>true<|close|>argument<|sep|>\
        <|open|>argument key=\"tags\" type=\"array\"<|sep|>[\"a\", \"b\"]<|close|>argument<|sep|>\
        <|close|>call<|sep|><|close|>tools<|sep|>";
    let arguments =
        json!({"query": "{\"not\": \"json\"}", "limit": 5, "safe": true, "tags": ["a", "b"]});
    assert_eq!(parse("kimi_k3", answer), [call("echo&log", arguments)]);
}

#[test]
fn mistral_repeats_calls_with_or_without_the_marker() {
    let calls = [call("ping", json!({})), call("search", json!({"limit": 1}))];
    for answer in [
        "[TOOL_CALLS]ping[ARGS]{}[TOOL_CALLS]search[ARGS]{\"limit\": 1}",
        "[TOOL_CALLS]ping[ARGS]{}search[ARGS]{\"limit\": 1}",
        "[TOOL_CALLS][{\"name\": \"ping\"}, {\"name\": \"search\", \"arguments\": {\"limit\": 1}}]",
    ] {
        assert_eq!(parse("mistral", answer), calls, "{answer}");
    }
    let answer = "[TOOL_CALLS]ping[ARGS]{}\nDone.";
    assert_eq!(parse("mistral", answer), [calls[0].clone(), text("Done.")]);
}

#[test]
fn text_around_calls_is_kept() {
    let answer = "Sure, I'll look that up.\n<function name=\"search\"><param name=\"query\">weather</param></function>\nIt looks sunny.\n";
    assert_eq!(
        parse("minicpm", answer),
        [
            text("Sure, I'll look that up."),
            call("search", json!({"query": "weather"})),
            text("It looks sunny.\n")
        ]
    );
}
