//! What real templates ask of the engine, each in a line or two.

use serde_json::{Value, json};

use super::template::ChatTemplate;
use super::*;
use crate::error::{Kind, Result};
use crate::tokenizer;

pub(super) const CLOCK: Clock = Clock::Fixed {
    year: 2025,
    month: 3,
    day: 7,
    hour: 9,
    minute: 5,
    second: 2,
};

pub(super) fn template(source: &str) -> ChatTemplate {
    let sources = vec![("default".to_owned(), source.to_owned())];
    ChatTemplate::compile(sources, &tokenizer::tests::with_bos(), CLOCK).unwrap()
}

fn render_request(source: &str, request: &Value) -> Result<String> {
    template(source).render(request)
}

fn render_with(source: &str, variables: &Value) -> String {
    let mut request = variables.clone();
    request["messages"] = json!([{"role": "user", "content": "Hi"}]);
    render_request(source, &request).unwrap_or_else(|error| panic!("{source}: {error}"))
}

fn render(source: &str) -> String {
    render_with(source, &json!({}))
}

#[test]
fn a_conversation_becomes_a_prompt() {
    let source = "{{ bos_token }}{% for message in messages %}
    {% if message.role == 'user' %}
[{{ message.content }}]
    {% endif %}
{% endfor %}
{% if add_generation_prompt %}>{% endif %}";
    let messages = json!([{"role": "system", "content": "x"}, {"role": "user", "content": "Hi"}]);
    let request = json!({"messages": messages});
    assert_eq!(render_request(source, &request).unwrap(), "<s>[Hi]\n>");
    let request = json!({"messages": messages, "add_generation_prompt": false});
    assert_eq!(render_request(source, &request).unwrap(), "<s>[Hi]\n");
}

#[test]
fn variables_come_from_the_request() {
    let source = "{{ enable_thinking }} {{ effort }} {{ missing is defined }} {{ tools is none }} {{ unset is defined }}";
    let variables =
        json!({"enable_thinking": false, "chat_template_kwargs": {"effort": "low"}, "unset": null});
    assert_eq!(render_with(source, &variables), "False low False True True");
}

#[test]
fn a_refusal_is_an_error_with_the_templates_words() {
    let request = json!({"messages": [{"role": "user", "content": "Hi"}]});
    let error =
        render_request("{{ raise_exception('roles must alternate!') }}", &request).unwrap_err();
    assert_eq!(error.kind(), Kind::Template);
    assert_eq!(error.message(), "roles must alternate!");
}

#[test]
fn an_endless_loop_ends() {
    let request = json!({"messages": [{"role": "user", "content": "Hi"}]});
    let source = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
    let error = render_request(source, &request).unwrap_err();
    assert_eq!(error.kind(), Kind::Template);
    assert!(error.message().contains("too much work"), "{error}");
}

/// The engine leaves a loop without the scopes that were opened in it, and then panics.
#[test]
fn what_the_engine_cannot_run_is_an_error() {
    let request = json!({"messages": [{"role": "user", "content": "Hi"}]});
    for jump in ["break", "continue"] {
        let source =
            format!("{{% for x in [1] %}}{{% with %}}{{% {jump} %}}{{% endwith %}}{{% endfor %}}");
        let error = render_request(&source, &request).unwrap_err();
        assert_eq!(error.kind(), Kind::Template, "{jump}");
    }
}

#[test]
fn json_is_written_as_python_writes_it() {
    let variables =
        json!({"x": {"b": 1, "a": ["é<>&'\"", 1.0, 1e20, null, true], "c": {}, "d": []}});
    assert_eq!(
        render_with("{{ x | tojson }}", &variables),
        r#"{"b": 1, "a": ["é<>&'\"", 1.0, 1e+20, null, true], "c": {}, "d": []}"#
    );
    assert_eq!(
        render_with(
            "{{ x | tojson(ensure_ascii=false, sort_keys=true, separators=(',', ':')) }}",
            &variables
        ),
        r#"{"a":["é<>&'\"",1.0,1e+20,null,true],"b":1,"c":{},"d":[]}"#
    );
    assert_eq!(
        render_with(
            "{{ x.a[:2] | tojson(ensure_ascii=true, indent=2) }}",
            &variables
        ),
        "[\n  \"\\u00e9<>&'\\\"\",\n  1.0\n]"
    );
    assert_eq!(
        render_with("{{ {'a': x.c} | tojson(indent=2) }}", &variables),
        "{\n  \"a\": {}\n}"
    );
}

#[test]
fn dates_come_from_the_clock() {
    let dates = [
        ("%d %b %Y", "07 Mar 2025"),
        ("%Y-%m-%d %H:%M:%S", "2025-03-07 09:05:02"),
        ("%-d", "7"),
        ("%A, %B %-d %-I %p", "Friday, March 7 9 AM"),
        ("%y %j %a 100%%", "25 066 Fri 100%"),
    ];
    for (format, date) in dates {
        assert_eq!(render(&format!("{{{{ strftime_now('{format}') }}}}")), date);
    }
}

#[test]
fn texts_have_pythons_methods() {
    for (expression, result) in [
        ("'a</think>b</think>c'.split('</think>')[-1]", "c"),
        ("'a b  c'.split()", "['a', 'b', 'c']"),
        ("'a,b,c'.split(',', 1)", "['a', 'b,c']"),
        ("'  a '.strip()", "a"),
        ("'\\n\\na\\n'.strip('\\n')", "a"),
        ("'xxaxx'.lstrip('x')", "axx"),
        ("'xxaxx'.rstrip('x')", "xxa"),
        ("'abc'.startswith('ab')", "True"),
        ("'abc'.startswith(('x', 'a'))", "True"),
        ("'abc'.endswith('bc')", "True"),
        ("'abc'.replace('b', 'x')", "axc"),
        ("'ab cd'.upper()", "AB CD"),
        ("'ab cd'.title()", "Ab Cd"),
        ("{'a': 1, 'b': 2}.items() | list", "[('a', 1), ('b', 2)]"),
        ("{'a': 1, 'b': 2}.keys() | list", "['a', 'b']"),
        ("{'a': 1}.get('b', 'none')", "none"),
        ("[1, 2, 3][-1]", "3"),
        ("[1, 2, 3][1:]", "[2, 3]"),
        ("[1, 2, 3][::-1]", "[3, 2, 1]"),
        ("'abc'[::-1]", "cba"),
        ("[1, 2, 3, 4][::2]", "[1, 3]"),
        ("[1, 2, 3, 4][3:0:-2]", "[4, 2]"),
    ] {
        assert_eq!(
            render(&format!("{{{{ {expression} }}}}")),
            result,
            "{expression}"
        );
    }
}

#[test]
fn an_undefined_value_is_an_empty_text_to_filters() {
    assert_eq!(
        render("[{{ x | upper }}{{ x | lower }}{{ x | trim }}{{ x | title }}]"),
        "[]"
    );
    assert_eq!(
        render("{{ x | length }}{{ x | list }}{{ x | join(',') }}"),
        "0[]"
    );
    assert_eq!(
        render_with("{{ x.type | upper }}", &json!({"x": {"anyOf": []}})),
        ""
    );
}

#[test]
fn loops_know_their_neighbours_and_namespaces_keep_values() {
    let source = "{% set ns = namespace(count=0) %}{% for x in 'abc' %}{% set ns.count = ns.count + 1 %}\
        {{ loop.previtem }}{{ x }}{{ loop.nextitem }};{% endfor %}{{ ns.count }}";
    assert_eq!(render(source), "ab;abc;bc;3");
}

#[test]
fn generation_blocks_print_their_content() {
    assert_eq!(
        render(
            "a{% generation %}b{% set x = 1 %}{% endgeneration %}{{ x is defined }}\n{%- generation -%} c {%- endgeneration %}"
        ),
        "abFalsec"
    );
}

#[test]
fn loops_can_be_left() {
    assert_eq!(
        render(
            "{% for x in range(9) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}"
        ),
        "02"
    );
}

#[test]
fn arguments_of_tool_calls_are_mappings() {
    let source = "{% for k, v in messages[0].tool_calls[0].function.arguments.items() %}{{ k }}={{ v }};{% endfor %}";
    for (arguments, result) in [
        (json!("{\"a\":3,\"b\":\"x\"}"), "a=3;b=x;"),
        (json!({"a": 3}), "a=3;"),
        (json!("[]"), "arguments=[];"),
        (json!("\"x\""), "arguments=x;"),
        (json!("null"), ""),
        (json!(""), ""),
        (json!(" "), ""),
        (Value::Null, ""),
        (json!("{\"a\": 3"), "arguments={\"a\": 3;"),
        (json!("7"), "arguments=7;"),
    ] {
        let call = json!({"type": "function", "id": "1", "function": {"name": "f", "arguments": arguments}});
        let request =
            json!({"messages": [{"role": "assistant", "content": null, "tool_calls": [call]}]});
        assert_eq!(
            render_request(source, &request).unwrap(),
            result,
            "{arguments}"
        );
    }
}

#[test]
fn tool_schemas_get_the_type_that_they_imply() {
    let tools = json!([{"function": {"name": "f", "parameters": {
        "properties": {
            "a": {"enum": ["x", "y"]},
            "b": {"items": {"type": "string"}},
            "c": {"anyOf": [{"type": "string"}, {"properties": {}}]},
            "type": {"description": "a parameter of this name"}}}}}]);
    assert_eq!(
        render_with("{{ tools | tojson }}", &json!({"tools": tools})),
        "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", \
         \"properties\": {\"a\": {\"type\": \"string\", \"enum\": [\"x\", \"y\"]}, \"b\": {\"type\": \"array\", \
         \"items\": {\"type\": \"string\"}}, \"c\": {\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"object\", \
         \"properties\": {}}]}, \"type\": {\"description\": \"a parameter of this name\"}}}}}]"
    );
}

#[test]
fn the_last_message_can_be_continued() {
    let source = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}<end>{% endfor %}";
    let request = |content: Value| {
        json!({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": content}],
            "continue_final_message": true})
    };
    assert_eq!(
        render_request(source, &request(json!("Sure, "))).unwrap(),
        "<user>Hi<end><assistant>Sure,"
    );
    let untrimmed = source.replace(" | trim", "");
    assert_eq!(
        render_request(&untrimmed, &request(json!("Sure, "))).unwrap(),
        "<user>Hi<end><assistant>Sure, "
    );
    let parts = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}<end>{% endfor %}";
    let content = json!([{"type": "text", "text": "Su"}, {"type": "text", "text": "re"}]);
    assert_eq!(
        render_request(parts, &request(content)).unwrap(),
        "Hi<end>Sure"
    );
    let error = render_request("{{ messages[0].content }}", &request(json!("x"))).unwrap_err();
    assert_eq!(error.kind(), Kind::Template);
}

#[test]
fn malformed_requests_are_errors_that_name_the_field() {
    for (request, message) in [
        (json!([]), "chat request is not a json object"),
        (json!({}), "chat request has no messages"),
        (json!({"messages": []}), "chat request has no messages"),
        (json!({"messages": {}}), "not a list: messages"),
        (json!({"messages": ["x"]}), "not an object: messages[0]"),
        (
            json!({"messages": [{"content": "x"}]}),
            "no role: messages[0]",
        ),
        (
            json!({"messages": [{"role": "user"}], "tools": [1]}),
            "not an object: tools[0]",
        ),
        (
            json!({"messages": [{"role": "user"}], "add_generation_prompt": 1}),
            "not a boolean: add_generation_prompt",
        ),
        (
            json!({"messages": [{"role": "assistant", "tool_calls": [{"function": 1}]}]}),
            "a tool call's function is not an object: messages[0]",
        ),
    ] {
        let error = render_request("", &request).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidArgument);
        assert_eq!(error.message(), message);
    }
}

#[test]
fn the_folder_decides_which_template_is_used() {
    let tokenizer = crate::tokenizer::tests::byte_level();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let hi = json!({"messages": [{"role": "user", "content": "Hi"}]});
    let with_tools = json!({"messages": hi["messages"], "tools": [{"type": "function", "function": {"name": "f"}}]});
    let load = || ChatTemplate::load(path, &tokenizer);
    assert_eq!(load().err().unwrap().kind(), Kind::Template);

    let config = |template: Value| {
        let text = json!({"chat_template": template}).to_string();
        std::fs::write(path.join("tokenizer_config.json"), text).unwrap();
    };
    config(json!("config"));
    assert_eq!(load().unwrap().render(&hi).unwrap(), "config");
    config(
        json!([{"name": "default", "template": "listed"}, {"name": "tool_use", "template": "tools"}]),
    );
    assert_eq!(load().unwrap().render(&hi).unwrap(), "listed");
    assert_eq!(load().unwrap().render(&with_tools).unwrap(), "tools");
    config(json!({"a": "one", "b": "two"}));
    let error = load().unwrap().render(&hi).unwrap_err();
    assert_eq!(error.message(), "chat_template must name one of: a, b");
    let named = json!({"messages": hi["messages"], "chat_template": "b"});
    assert_eq!(load().unwrap().render(&named).unwrap(), "two");
    config(json!(7));
    assert_eq!(load().err().unwrap().kind(), Kind::ModelFormat);

    std::fs::write(path.join("chat_template.jinja"), "file").unwrap();
    assert_eq!(load().unwrap().render(&hi).unwrap(), "file");
    std::fs::create_dir(path.join("additional_chat_templates")).unwrap();
    std::fs::write(
        path.join("additional_chat_templates/tool_use.jinja"),
        "file for tools",
    )
    .unwrap();
    std::fs::write(
        path.join("additional_chat_templates/._tool_use.jinja"),
        [0xFF],
    )
    .unwrap();
    assert_eq!(
        load().unwrap().render(&with_tools).unwrap(),
        "file for tools"
    );
    std::fs::write(path.join("chat_template.jinja"), "{% if %}").unwrap();
    assert_eq!(load().err().unwrap().kind(), Kind::Template);
}

/// Whatever a template builds up, it ends with a text or an error and not the process.
#[test]
fn values_that_would_exhaust_the_stack_are_refused() {
    let request = json!({"messages": [{"role": "user", "content": "x"}]});
    let grows = "{% set ns = namespace(x=[]) %}{% for i in range(30000) %}{% set ns.x = VALUE %}{% endfor %}";
    for source in [
        "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}".to_owned(),
        "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns.x == ns.x }}".to_owned(),
        "{% set ns = namespace() %}{% set l = {'a': ns} %}{% set ns.x = l %}{{ ns | tojson }}".to_owned(),
        "{% set ns = namespace() %}{% set (a, ns.x) = 1, ns %}{{ ns.x }}".to_owned(),
        grows.replace("VALUE", "[ns.x]"),
        grows.replace("VALUE", "{'a': ns.x}"),
        grows.replace("VALUE", "dict(a=ns.x)"),
        grows.replace("VALUE", "(ns.x, 1)"),
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}".to_owned(),
        "{% macro f(x) %}{{ g(x) }}{% endmacro %}{% macro g(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}".to_owned(),
    ] {
        let error = render_request(&source, &request).unwrap_err();
        assert_eq!(error.kind(), Kind::Template, "{source}: {error}");
    }
    // What templates do with namespaces works.
    let source = "{% set ns = namespace(items=[], last=none) %}{% for m in messages * 50 %}\
        {% set ns.items = ns.items + [m] %}{% set ns.last = m %}{% endfor %}{{ ns.items | length }} {{ ns.last.role }}";
    assert_eq!(render_request(source, &request).unwrap(), "50 user");
}

#[test]
fn deep_expressions_are_refused_or_run() {
    for (open, close) in [
        ("[", "]"),
        ("(", ")"),
        ("-", ""),
        ("not ", ""),
        ("f(", ")"),
        ("x[", "]"),
    ] {
        let source = format!("{{{{ {}1{} }}}}", open.repeat(20_000), close.repeat(20_000));
        let sources = vec![("default".to_owned(), source)];
        let tokenizer = tokenizer::tests::with_bos();
        if let Ok(template) = ChatTemplate::compile(sources, &tokenizer, CLOCK) {
            let request = json!({"messages": [{"role": "user", "content": "x"}]});
            let _ = template.render(&request);
        }
    }
    let source = format!("{{{{ [1]{} | length }}}}", " | batch(1)".repeat(20_000));
    assert_eq!(render(&source), "1");
}
