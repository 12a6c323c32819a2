//! Calls and their results, given back to templates that are particular about them.

use mlxb::{Protocol, RespondOptions};
use serde_json::{Value, json};

use crate::{respond, scripted, text_of};

/// As Mistral's and Llama's do: ids of nine characters, one call a message.
const TEMPLATE: &str = "{% for tool in tools %}[AVAILABLE_TOOLS]{{ tool | tojson }}{% endfor %}\
    {% for message in messages %}{% if message.tool_calls %}\
    {% if not message.tool_calls | length == 1 %}{{ raise_exception('several calls') }}{% endif %}\
    {% set call = message.tool_calls[0] %}\
    {% if call.id | length != 9 %}{{ raise_exception('id of a call') }}{% endif %}\
    [TOOL_CALLS]{{ call.function.name }}[ARGS]{{ call.function.arguments | tojson }}{{ call.id }}\
    {% elif message.role == 'tool' %}\
    {% if message.tool_call_id | length != 9 %}{{ raise_exception('id of a result') }}{% endif %}\
    {{ message.tool_call_id }}{{ message.content }}\
    {% else %}{{ message.content }}{% endif %}{% endfor %}{{ script }}";

const SCRIPTS: &[(char, &[&str])] = &[
    (
        'a',
        &[
            "[TOOL_CALLS]time[ARGS]{}",
            "[TOOL_CALLS]time[ARGS]{\"zone\": \"UTC\"}",
        ],
    ),
    ('b', &["It is", " noon."]),
];

#[test]
fn calls_come_back_with_their_results_in_the_form_that_the_template_takes() {
    let model = scripted::load_with(TEMPLATE, SCRIPTS);
    let options = RespondOptions::default();
    let function = json!({"name": "time", "parameters": {"type": "object", "properties": {}}});
    let mut flat = function.clone();
    flat["type"] = json!("function");
    let user = json!({"role": "user", "content": "Hi"});

    let protocol = Protocol::ChatCompletions;
    let mut request = json!({"messages": [user], "chat_template_kwargs": {"script": "a"},
        "tools": [{"type": "function", "function": function}]});
    let (_, response) = respond(&model, protocol, &request, &options).unwrap();
    let message = &response["choices"][0]["message"];
    let calls = message["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 2, "{response}");
    let mut messages = vec![user.clone(), message.clone()];
    messages.extend(
        calls
            .iter()
            .map(|call| json!({"role": "tool", "tool_call_id": call["id"], "content": "noon"})),
    );
    request["messages"] = json!(messages);
    request["chat_template_kwargs"] = json!({"script": "b"});
    let (_, response) = respond(&model, protocol, &request, &options).unwrap();
    assert_eq!(text_of(protocol, &response), "It is noon.");

    let protocol = Protocol::Responses;
    let mut request =
        json!({"input": [user], "chat_template_kwargs": {"script": "a"}, "tools": [flat]});
    let (_, response) = respond(&model, protocol, &request, &options).unwrap();
    let calls: Vec<Value> = response["output"].as_array().unwrap().clone();
    let outputs = calls.iter().map(|call| {
        json!({"type": "function_call_output", "call_id": call["call_id"], "output": "noon"})
    });
    let outputs: Vec<Value> = outputs.collect();
    request["input"] = json!([vec![user.clone()], calls, outputs].concat());
    request["chat_template_kwargs"] = json!({"script": "b"});
    let (_, response) = respond(&model, protocol, &request, &options).unwrap();
    assert_eq!(text_of(protocol, &response), "It is noon.");

    let protocol = Protocol::Messages;
    let mut request = json!({"messages": [user], "max_tokens": 64,
        "chat_template_kwargs": {"script": "a"},
        "tools": [{"name": "time", "input_schema": function["parameters"]}]});
    let (_, response) = respond(&model, protocol, &request, &options).unwrap();
    let results =
        response["content"].as_array().unwrap().iter().map(
            |call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "noon"}),
        );
    let results: Vec<Value> = results.collect();
    request["messages"] = json!([user, {"role": "assistant", "content": response["content"]},
        {"role": "user", "content": results}]);
    request["chat_template_kwargs"] = json!({"script": "b"});
    let (_, response) = respond(&model, protocol, &request, &options).unwrap();
    assert_eq!(text_of(protocol, &response), "It is noon.");
}
