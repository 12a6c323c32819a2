//! Requests of Responses.

use super::*;
use crate::protocol::tools::ToolChoice;

const P: Protocol = Protocol::Responses;

fn base() -> Value {
    json!({"model": "m", "input": "Hi"})
}

fn messages(input: Value) -> Vec<Value> {
    read(P, &json!({"input": input})).unwrap().messages
}

#[test]
fn everything_for_the_system_is_one_message_at_the_start() {
    let request = json!({
        "instructions": "one",
        "input": [
            {"role": "developer", "content": "two"},
            {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
            {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "three"}]},
        ],
    });
    assert_eq!(
        json!(read(P, &request).unwrap().messages),
        json!([
            {"role": "system", "content": "one\n\ntwo\n\nthree"},
            {"role": "user", "content": "a\nb"},
        ])
    );
    assert_eq!(
        messages(json!("Hi")),
        [json!({"role": "user", "content": "Hi"})]
    );
}

#[test]
fn items_in_a_row_are_one_turn() {
    let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "add", "arguments": "{}"});
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "3"});
    let text = |text: &str| {
        json!({"type": "message", "id": "m", "status": "completed", "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
    };
    let turns = messages(json!([
        {"role": "user", "content": "Hi"},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "short"}],
         "content": [{"type": "reasoning_text", "text": "why"}]},
        text("Let me see"), call("1"), call("2"), output("2"), output("1"),
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "ah"}], "encrypted_content": "x"},
        text("three"), text("four"),
    ]));
    let roles: Vec<&str> = turns
        .iter()
        .map(|turn| turn["role"].as_str().unwrap())
        .collect();
    assert_eq!(
        roles,
        [
            "user",
            "assistant",
            "tool",
            "tool",
            "assistant",
            "assistant"
        ]
    );
    assert_eq!(turns[1]["reasoning_content"], "why");
    assert_eq!(turns[1]["content"], "Let me see");
    assert_eq!(turns[1]["tool_calls"].as_array().unwrap().len(), 2);
    assert_eq!(turns[2]["tool_call_id"], "2");
    assert_eq!(
        turns[4],
        json!({"role": "assistant", "reasoning_content": "ah", "content": "three"})
    );
    assert_eq!(turns[5], json!({"role": "assistant", "content": "four"}));
}

#[test]
fn built_in_tools_are_dropped_and_cannot_be_chosen() {
    let tools = json!([
        {"type": "web_search"}, flat_tool("add"), {"type": "file_search", "vector_store_ids": []},
        {"type": "mcp", "server_label": "x"}, {"type": "code_interpreter", "container": "c"},
    ]);
    let request = with(&base(), "tools", tools);
    let turn = read(P, &request).unwrap();
    assert_eq!(
        turn.to_chat()["tools"].to_string(),
        json!([nested_tool("add")]).to_string()
    );
    for (choice, named) in [
        (
            json!({"type": "web_search_preview"}),
            "tool_choice.type web_search_preview",
        ),
        (
            json!({"type": "mcp", "server_label": "x"}),
            "tool_choice.type mcp",
        ),
        (
            json!({"type": "custom", "name": "x"}),
            "tool_choice.type custom",
        ),
        (
            json!({"type": "function", "name": "web_search"}),
            "tool_choice.name web_search",
        ),
        (json!({"type": "x"}), "tool_choice.type x"),
    ] {
        assert_refused(P, &with(&request, "tool_choice", choice), named);
    }
    let only_built_in = with(&base(), "tools", json!([{"type": "web_search"}]));
    assert!(read(P, &only_built_in).unwrap().tools.is_empty());
    assert_refused(
        P,
        &with(&only_built_in, "tool_choice", json!("required")),
        "tool_choice",
    );
    for (choice, expected) in [
        (json!("required"), ToolChoice::Required),
        (
            json!({"type": "function", "name": "add"}),
            ToolChoice::Named("add".into()),
        ),
        (
            json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "add"}]}),
            ToolChoice::Auto,
        ),
    ] {
        let turn = read(P, &with(&request, "tool_choice", choice)).unwrap();
        assert_eq!(turn.tool_choice, expected);
    }
}

#[test]
fn a_conversation_goes_on_from_a_kept_response() {
    let ann = cache_for("ann");
    let bob = CacheUse {
        namespace: "bob".into(),
        ..ann.clone()
    };
    let before = vec![
        json!({"role": "user", "content": "one"}),
        json!({"role": "assistant", "content": "two"}),
    ];
    ann.cache.responses().put("ann", "resp_1", before);
    let request = json!({"previous_response_id": "resp_1", "input": "three"}).to_string();
    let read = |cache| Request::read(P, &request, cache);
    let messages = read(Some(&ann)).unwrap().turn().messages.clone();
    let texts: Vec<&Value> = messages.iter().map(|message| &message["content"]).collect();
    assert_eq!(texts, ["one", "two", "three"]);
    let refused = |cache| {
        let error = read(cache).unwrap_err();
        assert_eq!(error.kind(), Kind::Protocol);
        assert!(error.message().ends_with("previous_response_id resp_1"));
    };
    refused(None);
    refused(Some(&bob));
    ann.cache.clear().unwrap();
    refused(Some(&ann));
}

#[test]
fn a_reference_stands_for_a_kept_item() {
    let cache = cache_for("ann");
    let text = |id: &str, text: &str| {
        json!({"type": "message", "id": id, "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}]})
    };
    let call = json!({"type": "function_call", "id": "fc_1", "call_id": "1", "name": "add",
        "arguments": "{}"});
    let responses = cache.cache.responses();
    responses.put("ann", "resp_1", vec![text("msg_1", "two"), call]);
    responses.put("bob", "resp_2", vec![text("msg_2", "secret")]);
    let read = |input: Value, cache| {
        Request::read(P, &json!({"input": input}).to_string(), cache)
            .map(|request| request.turn().messages.clone())
    };
    let input = json!([
        {"role": "user", "content": "one"},
        {"type": "item_reference", "id": "msg_1"},
        {"id": "fc_1"},
        {"type": "function_call_output", "call_id": "1", "output": "3"},
    ]);
    let messages = read(input.clone(), Some(&cache)).unwrap();
    let contents: Vec<&Value> = messages.iter().map(|message| &message["content"]).collect();
    assert_eq!(contents, ["one", "two", "3"]);
    assert_eq!(messages[1]["tool_calls"][0]["id"], "1");
    // The items themselves are kept, so that they stay when what they came from goes.
    let request = json!({"input": input}).to_string();
    let Ok(Request::Responses(request)) = Request::read(P, &request, Some(&cache)) else {
        panic!("it is one of Responses");
    };
    assert_eq!(request.items[1], text("msg_1", "two"));
    for (input, cache, named) in [
        (input, None, "input[1].id msg_1"),
        (
            json!([{"type": "item_reference", "id": "msg_2"}]),
            Some(&cache),
            "input[0].id msg_2",
        ),
        (
            json!([{"type": "item_reference"}]),
            Some(&cache),
            "input[0].id",
        ),
        (json!([{}]), Some(&cache), "input[0].role"),
    ] {
        let error = read(input, cache).unwrap_err();
        assert!(error.message().ends_with(named), "{error}");
    }
}

#[test]
fn a_mistake_is_told_by_its_place_in_the_request_itself() {
    let cache = cache_for("");
    let before = vec![json!({"role": "user", "content": "one"})];
    cache.cache.responses().put("", "resp_1", before);
    let request = json!({"previous_response_id": "resp_1", "input": [{"role": "user"}]});
    let error = Request::read(P, &request.to_string(), Some(&cache)).unwrap_err();
    assert_eq!(error.message(), "missing: input[0].content");
    let request = json!({"previous_response_id": "resp_2", "input": "Hi"});
    let error = Request::read(P, &request.to_string(), Some(&cache)).unwrap_err();
    let body = failure::body(P, &error);
    assert_eq!(body["error"]["param"], "previous_response_id");
    assert_eq!(body["error"]["code"], "previous_response_not_found");
}

#[test]
fn what_asks_for_the_default_is_accepted() {
    for (key, value) in [
        ("background", json!(false)),
        ("truncation", json!("disabled")),
        ("service_tier", json!("auto")),
        (
            "text",
            json!({"format": {"type": "text"}, "verbosity": "medium"}),
        ),
        ("parallel_tool_calls", json!(true)),
        ("include", json!(["reasoning.encrypted_content"])),
        ("store", json!(false)),
        ("stream", json!(true)),
        ("stream_options", json!({"include_obfuscation": false})),
        ("metadata", json!({"a": "b"})),
        ("user", json!("u")),
        ("max_tool_calls", json!(3)),
        ("reasoning", json!({"summary": "auto"})),
        ("top_logprobs", json!(0)),
        ("previous_response_id", Value::Null),
        ("something_new", json!(1)),
    ] {
        let turn = read(P, &with(&base(), key, value)).unwrap();
        assert_eq!(
            turn.to_chat(),
            json!({"messages": [{"role": "user", "content": "Hi"}]})
        );
        assert_eq!(turn.logprobs, None);
    }
    let turn = read(
        P,
        &with(&base(), "include", json!(["message.output_text.logprobs"])),
    )
    .unwrap();
    assert_eq!(turn.logprobs, Some(0));
    let turn = read(P, &with(&base(), "reasoning", json!({"effort": "high"}))).unwrap();
    assert_eq!(
        turn.to_chat()["chat_template_kwargs"]["reasoning_effort"],
        "high"
    );
}

#[test]
fn what_is_known_but_not_done_is_named() {
    for (key, value, named) in [
        ("input", Value::Null, "input"),
        ("input", json!([]), "input"),
        ("input", json!({}), "input"),
        ("background", json!(true), "background true"),
        ("truncation", json!("auto"), "truncation auto"),
        ("conversation", json!("c"), "conversation c"),
        ("prompt", json!({"id": "p"}), "prompt"),
        (
            "text",
            json!({"format": {"type": "json_schema"}}),
            "text.format.type json_schema",
        ),
        ("text", json!({"verbosity": "low"}), "text.verbosity low"),
        ("service_tier", json!("flex"), "service_tier flex"),
        (
            "reasoning",
            json!({"summary": "concise"}),
            "reasoning.summary concise",
        ),
        (
            "context_management",
            json!([{"type": "compaction"}]),
            "context_management",
        ),
        ("max_output_tokens", json!(0), "max_output_tokens"),
        ("top_logprobs", json!(21), "top_logprobs 21"),
        ("user", json!(1), "user"),
        (
            "tools",
            json!([{"type": "custom", "name": "x"}]),
            "tools[0].type custom",
        ),
        ("tools", json!([{"type": "x"}]), "tools[0].type x"),
        (
            "tools",
            json!([with(&flat_tool("f"), "async", json!(true))]),
            "tools[0].async true",
        ),
        (
            "tools",
            json!([with(
                &flat_tool("f"),
                "allowed_callers",
                json!(["programmatic"])
            )]),
            "tools[0].allowed_callers",
        ),
        ("instructions", json!([]), "instructions"),
    ] {
        assert_refused(P, &with(&base(), key, value), named);
    }
    for (item, named) in [
        (
            json!({"role": "user", "content": [{"type": "input_image"}]}),
            "input[0].content[0].type input_image",
        ),
        (
            json!({"role": "user", "content": [{"type": "input_file"}]}),
            "input[0].content[0].type input_file",
        ),
        (
            json!({"role": "wizard", "content": "x"}),
            "input[0].role wizard",
        ),
        (
            json!({"type": "item_reference", "id": "x"}),
            "input[0].id x",
        ),
        (
            json!({"type": "computer_call"}),
            "input[0].type computer_call",
        ),
        (json!({"type": "hologram"}), "input[0].type hologram"),
        (
            json!({"type": "function_call_output", "call_id": "7", "output": "x"}),
            "input[0].call_id 7",
        ),
        (
            json!({"type": "function_call", "name": "f"}),
            "input[0].call_id",
        ),
        (json!("x"), "input[0]"),
    ] {
        assert_refused(P, &with(&base(), "input", json!([item])), named);
    }
}
