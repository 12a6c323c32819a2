//! Requests of Chat Completions.

use super::*;
use crate::protocol::tools::ToolChoice;

const P: Protocol = Protocol::ChatCompletions;

fn base() -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})
}

fn messages(messages: Value) -> Vec<Value> {
    read(P, &json!({"messages": messages})).unwrap().messages
}

#[test]
fn all_text_arrives_in_its_order() {
    let chat = messages(json!([
        {"role": "developer", "content": "one"},
        {"role": "system", "content": [{"type": "text", "text": "two"}, {"type": "text", "text": "three"}]},
        {"role": "user", "name": "Ann", "content": [{"type": "text", "text": "four"}, {"type": "text", "text": "five"}]},
        {"role": "assistant", "content": null, "refusal": "six"},
        {"role": "system", "content": "seven"},
        {"role": "user", "content": "eight"},
        {"role": "assistant", "content": [{"type": "text", "text": "nine"}], "reasoning_content": "why"},
    ]));
    assert_eq!(
        json!(chat),
        json!([
            {"role": "system", "content": "one\n\ntwo\nthree"},
            {"role": "user", "name": "Ann", "content": "four\nfive"},
            {"role": "assistant", "content": "six"},
            {"role": "system", "content": "seven"},
            {"role": "user", "content": "eight"},
            {"role": "assistant", "reasoning_content": "why", "content": "nine"},
        ])
    );
}

#[test]
fn a_tools_answer_is_told_with_the_tools_name() {
    let call = |id: &str, name: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{\"a\": 1}"}});
    let chat = messages(json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "tool_calls": [call("1", "add"), call("2", "sub")]},
        {"role": "tool", "tool_call_id": "2", "content": "5"},
        {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "6"}]},
    ]));
    assert_eq!(chat[1]["content"], "");
    assert_eq!(
        chat[1]["tool_calls"],
        json!([call("1", "add"), call("2", "sub")])
    );
    assert_eq!(
        chat[2..],
        [
            json!({"role": "tool", "tool_call_id": "2", "name": "sub", "content": "5"}),
            json!({"role": "tool", "tool_call_id": "1", "name": "add", "content": "6"}),
        ]
    );
}

#[test]
fn tools_keep_the_order_of_their_keys() {
    let mut tool = nested_tool("add");
    tool["function"]["strict"] = json!(true);
    tool["function"]["x"] = json!(1);
    let turn = read(P, &with(&base(), "tools", json!([tool]))).unwrap();
    assert_eq!(
        json!(turn.tools).to_string(),
        json!([nested_tool("add")]).to_string()
    );
    assert_eq!(turn.to_chat()["tools"], json!([nested_tool("add")]));
}

#[test]
fn a_tool_is_chosen_by_a_word_by_name_or_from_a_list() {
    let tools = with(
        &base(),
        "tools",
        json!([nested_tool("add"), nested_tool("sub")]),
    );
    let turn = |choice: Value| read(P, &with(&tools, "tool_choice", choice)).unwrap();
    let named = |name: &str| ToolChoice::Named(name.into());
    for (choice, expected, count) in [
        (Value::Null, ToolChoice::Auto, 2),
        (json!("auto"), ToolChoice::Auto, 2),
        (json!("none"), ToolChoice::None, 0),
        (json!("required"), ToolChoice::Required, 2),
        (
            json!({"type": "function", "function": {"name": "sub"}}),
            named("sub"),
            2,
        ),
        (
            json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
                {"type": "function", "function": {"name": "add"}}]}}),
            ToolChoice::Required,
            1,
        ),
    ] {
        let turn = turn(choice);
        assert_eq!((turn.tool_choice, turn.tools.len()), (expected, count));
    }
    for (choice, named) in [
        (json!("any"), "tool_choice any"),
        (json!(1), "tool_choice"),
        (
            json!({"type": "function", "function": {"name": "mul"}}),
            "tool_choice.function.name mul",
        ),
        (json!({"type": "function"}), "tool_choice.function"),
        (
            json!({"type": "custom", "custom": {"name": "x"}}),
            "tool_choice.type custom",
        ),
        (
            json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
                {"type": "function", "function": {"name": "mul"}}]}}),
            "tool_choice.allowed_tools.tools mul",
        ),
    ] {
        assert_refused(P, &with(&tools, "tool_choice", choice), named);
    }
    assert_refused(
        P,
        &with(&base(), "tool_choice", json!("required")),
        "tool_choice",
    );
    let twice = json!([nested_tool("add"), nested_tool("add")]);
    assert_refused(P, &with(&base(), "tools", twice), "add");
}

#[test]
fn what_asks_for_the_default_is_accepted() {
    for (key, value) in [
        ("n", json!(1)),
        ("stream", json!(true)),
        (
            "stream_options",
            json!({"include_usage": true, "include_obfuscation": false}),
        ),
        ("store", json!(true)),
        ("metadata", json!({"a": "b"})),
        ("user", json!("u")),
        ("parallel_tool_calls", json!(true)),
        ("service_tier", json!("auto")),
        ("service_tier", json!("default")),
        ("response_format", json!({"type": "text"})),
        ("modalities", json!(["text"])),
        ("verbosity", json!("medium")),
        ("prompt_cache_key", json!("k")),
        ("prompt_cache_retention", json!("24h")),
        ("safety_identifier", json!("s")),
        ("tools", json!([])),
        ("logprobs", json!(false)),
        ("something_new", json!({"a": [1]})),
    ] {
        let request = with(&base(), key, value);
        let turn = read(P, &request).unwrap_or_else(|error| panic!("{request}: {error}"));
        assert_eq!(turn.to_chat(), json!({"messages": base()["messages"]}));
    }
    let mut nulls = base();
    for key in [
        "n",
        "stream",
        "stream_options",
        "temperature",
        "max_tokens",
        "stop",
        "tools",
        "tool_choice",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "response_format",
        "seed",
        "audio",
        "prediction",
        "functions",
        "reasoning_effort",
        "chat_template_kwargs",
        "adapter",
    ] {
        nulls[key] = Value::Null;
    }
    let turn = read(P, &nulls).unwrap();
    assert_eq!((turn.max_tokens, turn.logprobs), (None, None));
    assert!(turn.parallel_tool_calls);
}

#[test]
fn what_is_known_but_not_done_is_named() {
    for (key, value, named) in [
        ("n", json!(2), "n 2"),
        (
            "response_format",
            json!({"type": "json_object"}),
            "response_format.type json_object",
        ),
        (
            "response_format",
            json!({"type": "json_schema", "json_schema": {}}),
            "response_format.type json_schema",
        ),
        ("modalities", json!(["text", "audio"]), "modalities"),
        ("audio", json!({"voice": "x"}), "audio"),
        (
            "prediction",
            json!({"type": "content", "content": "x"}),
            "prediction",
        ),
        ("web_search_options", json!({}), "web_search_options"),
        ("functions", json!([{"name": "f"}]), "functions"),
        ("function_call", json!({"name": "f"}), "function_call"),
        ("service_tier", json!("flex"), "service_tier flex"),
        ("verbosity", json!("low"), "verbosity low"),
        (
            "tools",
            json!([{"type": "custom", "custom": {"name": "x"}}]),
            "tools[0].type custom",
        ),
        ("tools", json!([{"type": "fn"}]), "tools[0].type fn"),
        (
            "tools",
            json!([{"type": "function", "function": {"name": ""}}]),
            "tools[0].function.name",
        ),
        ("tools", json!({"a": 1}), "tools"),
        ("max_tokens", json!(0), "max_tokens"),
        ("max_completion_tokens", json!("5"), "max_completion_tokens"),
        ("stop", json!(["a", 1]), "stop"),
        ("stop", json!(""), "stop"),
        ("top_logprobs", json!(3), "top_logprobs"),
        (
            "chat_template_kwargs",
            json!({"messages": []}),
            "chat_template_kwargs.messages",
        ),
        ("chat_template_kwargs", json!([]), "chat_template_kwargs"),
        ("messages", json!([]), "messages"),
        ("messages", Value::Null, "messages"),
    ] {
        assert_refused(P, &with(&base(), key, value), named);
    }
    for (message, named) in [
        (
            json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}),
            "messages[0].content[0].type image_url",
        ),
        (
            json!({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}),
            "messages[0].content[0].type input_audio",
        ),
        (
            json!({"role": "user", "content": [{"type": "file", "file": {}}]}),
            "messages[0].content[0].type file",
        ),
        (
            json!({"role": "user", "content": [{"type": "hologram"}]}),
            "messages[0].content[0].type hologram",
        ),
        (json!({"role": "user", "content": 1}), "messages[0].content"),
        (json!({"role": "user"}), "messages[0].content"),
        (
            json!({"role": "function", "name": "f", "content": "x"}),
            "messages[0].role function",
        ),
        (
            json!({"role": "wizard", "content": "x"}),
            "messages[0].role wizard",
        ),
        (json!({"content": "x"}), "messages[0].role"),
        (
            json!({"role": "tool", "content": "x"}),
            "messages[0].tool_call_id",
        ),
        (
            json!({"role": "tool", "tool_call_id": "7", "content": "x"}),
            "messages[0].tool_call_id 7",
        ),
        (
            json!({"role": "assistant", "audio": {"id": "a"}}),
            "messages[0].audio",
        ),
        (
            json!({"role": "assistant", "function_call": {"name": "f"}}),
            "messages[0].function_call",
        ),
        (
            json!({"role": "assistant", "tool_calls": [{"id": "1", "type": "custom"}]}),
            "messages[0].tool_calls[0].type custom",
        ),
        (
            json!({"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": 1}}]}),
            "messages[0].tool_calls[0].function.arguments",
        ),
    ] {
        assert_refused(P, &json!({"messages": [message]}), named);
    }
}

#[test]
fn an_error_says_which_field_is_wrong_and_how() {
    for (key, value, param, code) in [
        ("n", json!(2), "n", "unsupported_value"),
        (
            "audio",
            json!({"voice": "x"}),
            "audio",
            "unsupported_parameter",
        ),
        ("temperature", json!("hot"), "temperature", "invalid_type"),
        ("top_p", json!(2), "top_p", "invalid_value"),
        (
            "messages",
            json!([{"role": "user"}]),
            "messages[0].content",
            "missing_required_parameter",
        ),
        (
            "messages",
            json!([{"role": "tool", "tool_call_id": "7", "content": "x"}]),
            "messages[0].tool_call_id",
            "invalid_value",
        ),
        (
            "tools",
            json!([nested_tool("add"), nested_tool("add")]),
            "tools",
            "invalid_value",
        ),
    ] {
        let error = read(P, &with(&base(), key, value)).unwrap_err();
        let body = failure::body(P, &error);
        assert_eq!(
            body["error"],
            json!({"message": error.message(), "type": "invalid_request_error", "param": param,
                "code": code})
        );
    }
}

#[test]
fn settings_are_read_under_all_their_names() {
    let turn = read(
        P,
        &json!({
            "messages": [{"role": "user", "content": "Hi"}],
            "max_tokens": 5, "max_completion_tokens": 7.0, "stop": "END", "logprobs": true,
            "top_logprobs": 2, "parallel_tool_calls": false, "adapter": "a", "model": "m",
            "reasoning_effort": "none", "chat_template_kwargs": {"thinking": true, "x": 1},
        }),
    )
    .unwrap();
    assert_eq!((turn.max_tokens, turn.logprobs), (Some(7), Some(2)));
    assert_eq!(turn.stop, ["END"]);
    assert!(!turn.parallel_tool_calls);
    assert_eq!(
        (turn.adapter.as_deref(), turn.model.as_deref()),
        (Some("a"), Some("m"))
    );
    assert_eq!(
        turn.to_chat()["chat_template_kwargs"],
        json!({"reasoning_effort": "none", "thinking": true, "x": 1})
    );
}
