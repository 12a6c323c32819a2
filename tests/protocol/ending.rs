//! How answers end that do not end by themselves.

use mlxb::{Cancel, Flow, Kind, LoadOptions, Model, Protocol, RespondOptions};
use serde_json::{Value, json};

use crate::{PROTOCOLS, respond, scripted, support::Folder, text_of};

fn request(protocol: Protocol, letter: &str) -> Value {
    let mut request = match protocol {
        Protocol::Responses => json!({"input": "Hi"}),
        _ => json!({"max_tokens": 32, "messages": [{"role": "user", "content": "Hi"}]}),
    };
    request["chat_template_kwargs"] = json!({"script": letter});
    request
}

fn last_event(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Responses => "response.incomplete",
        Protocol::ChatCompletions => "chat.completion.chunk",
        _ => "message_stop",
    }
}

#[test]
fn an_answer_that_is_cancelled_beforehand_is_empty_and_whole() {
    let model = scripted::load();
    for protocol in PROTOCOLS {
        let options = RespondOptions {
            cancel: Some(Cancel::new()),
            ..RespondOptions::default()
        };
        options.cancel.as_ref().unwrap().request();
        let (events, response) =
            respond(&model, protocol, &request(protocol, "a"), &options).unwrap();
        assert_eq!(text_of(protocol, &response), "");
        assert_eq!(events.last().unwrap().0, last_event(protocol));
    }
}

#[test]
fn a_cancelled_answer_keeps_what_was_said_and_ends_in_its_protocols_way() {
    let model = scripted::load();
    for protocol in PROTOCOLS {
        let cancel = Cancel::new();
        let options = RespondOptions {
            cancel: Some(cancel.clone()),
            ..RespondOptions::default()
        };
        let mut names = Vec::new();
        let response = model
            .respond(
                protocol,
                &request(protocol, "a").to_string(),
                &options,
                Some(&mut |name, data| {
                    names.push(name.to_owned());
                    if data.contains("Hello") {
                        cancel.request();
                    }
                    Flow::Continue
                }),
            )
            .unwrap();
        let response: Value = serde_json::from_str(&response).unwrap();
        assert_eq!(text_of(protocol, &response), "Hello");
        assert_eq!(names.last().unwrap(), last_event(protocol));
    }
}

#[test]
fn nothing_is_told_after_a_callback_wants_no_more() {
    let model = scripted::load();
    for protocol in PROTOCOLS {
        for last in 1..12 {
            let mut count = 0;
            let response = model
                .respond(
                    protocol,
                    &request(protocol, "b").to_string(),
                    &RespondOptions::default(),
                    Some(&mut |_, _| {
                        count += 1;
                        if count == last {
                            Flow::Stop
                        } else {
                            Flow::Continue
                        }
                    }),
                )
                .unwrap();
            assert!(count <= last);
            let response: Value = serde_json::from_str(&response).unwrap();
            assert!(!text_of(protocol, &response).contains("noon") || count < last + 1);
        }
    }
}

#[test]
fn what_cannot_begin_tells_no_events() {
    let model = scripted::load();
    let long = "word ".repeat(2000);
    for protocol in PROTOCOLS {
        let mut too_long = request(protocol, "a");
        match protocol {
            Protocol::Responses => too_long["input"] = json!(long),
            _ => too_long["messages"][0]["content"] = json!(long),
        }
        let mut with_adapter = request(protocol, "a");
        with_adapter["adapter"] = json!("mine");
        let mut with_bias = request(protocol, "a");
        with_bias["logit_bias"] = json!({"100000": 1});
        for (request, kind, named) in [
            (too_long, Kind::ContextFull, "8192"),
            (with_adapter, Kind::Unsupported, "mine"),
            (with_bias, Kind::InvalidArgument, "100000"),
        ] {
            let mut count = 0;
            let error = model
                .respond(
                    protocol,
                    &request.to_string(),
                    &RespondOptions::default(),
                    Some(&mut |_, _| {
                        count += 1;
                        Flow::Continue
                    }),
                )
                .unwrap_err();
            assert_eq!((error.kind(), count), (kind, 0), "{error}");
            assert!(error.message().ends_with(named), "{error}");
            let body: Value = serde_json::from_str(error.detail().unwrap()).unwrap();
            assert_eq!(body["error"]["type"], "invalid_request_error");
            assert_eq!(body["error"]["message"], error.message());
            if protocol != Protocol::Messages {
                let (param, code) = match (kind, protocol) {
                    (Kind::ContextFull, Protocol::Responses) => {
                        (json!("input"), json!("context_length_exceeded"))
                    }
                    (Kind::ContextFull, _) => (json!("messages"), json!("context_length_exceeded")),
                    (Kind::Unsupported, _) => (json!("adapter"), json!("unsupported_parameter")),
                    _ => (Value::Null, Value::Null),
                };
                assert_eq!(
                    (&body["error"]["param"], &body["error"]["code"]),
                    (&param, &code)
                );
            }
        }
    }
}

/// A model of random weights, told of tools as Hermes and Qwen are.
fn random_model(folder: &Folder) -> Model {
    let template = "{% for tool in tools %}{{ tool | tojson }}{% endfor %}\
        {% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}\
        {% for call in message.tool_calls %}<tool_call>\n{{ call.function | tojson }}\n</tool_call>\
        {% endfor %}<|im_end|>\n{% endfor %}\
        {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    folder.change("tokenizer_config.json", |config| {
        config.insert("chat_template".into(), template.into());
    });
    Model::load(&folder.path, LoadOptions::default()).unwrap()
}

#[test]
fn a_random_model_that_must_call_a_tool_calls_it_or_fails() {
    let folder = Folder::new();
    let model = random_model(&folder);
    let schema = json!({"type": "object", "properties": {}});
    let tool = json!({"name": "f", "parameters": schema});
    for (protocol, tools, choices, failure) in [
        (
            Protocol::ChatCompletions,
            json!([{"type": "function", "function": tool}]),
            [
                json!("required"),
                json!({"type": "function", "function": {"name": "f"}}),
            ],
            "error",
        ),
        (
            Protocol::Responses,
            json!([{"type": "function", "name": "f", "parameters": schema}]),
            [json!("required"), json!({"type": "function", "name": "f"})],
            "response.failed",
        ),
        (
            Protocol::Messages,
            json!([{"name": "f", "input_schema": schema}]),
            [json!({"type": "any"}), json!({"type": "tool", "name": "f"})],
            "error",
        ),
    ] {
        for choice in choices {
            for seed in 0..3 {
                let mut request = request(protocol, "");
                request["tools"] = tools.clone();
                request["tool_choice"] = choice.clone();
                request["seed"] = json!(seed);
                request["temperature"] = json!(1);
                request["max_output_tokens"] = json!(32);
                let mut last = (String::new(), Value::Null);
                let response = model.respond(
                    protocol,
                    &request.to_string(),
                    &RespondOptions::default(),
                    Some(&mut |name, data| {
                        last = (name.to_owned(), serde_json::from_str(data).unwrap());
                        Flow::Continue
                    }),
                );
                match response {
                    Ok(response) => assert!(response.contains("\"f\""), "{response}"),
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::Protocol, "{error}");
                        assert!(error.message().ends_with("tool_choice"));
                        assert_eq!(last.0, failure);
                        assert!(last.1.to_string().contains(error.message()));
                        // The request was right, the model was not.
                        let body: Value = serde_json::from_str(error.detail().unwrap()).unwrap();
                        let kind = match protocol {
                            Protocol::Messages => "api_error",
                            _ => "server_error",
                        };
                        assert_eq!(body["error"]["type"], kind);
                    }
                }
            }
        }
    }
}

/// Where a template begins the reasoning itself, a call that must be made ends it first.
#[test]
fn a_call_that_must_be_made_does_not_get_lost_in_reasoning() {
    let template = "{% for tool in tools %}{{ tool | tojson }}{% endfor %}\
        {% for message in messages %}<|im_start|>{{ message.role }}\n\
        {{ message.content.split('</think>')[-1] }}{% for call in message.tool_calls %}\
        <tool_call>\n{{ call.function | tojson }}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}\
        <|im_start|>assistant\n<think>\n";
    // What follows `<tool_call>\n{"name": "`.
    let call: &[&str] = &["time\", \"arguments\": {}}", "\n</tool_call>"];
    let model = scripted::load_with(template, &[('"', call)]);
    let tool = json!({"type": "function", "function": {"name": "time", "parameters": {}}});
    let request = json!({
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [tool],
        "tool_choice": "required",
    });
    let options = RespondOptions::default();
    let (_, response) = respond(&model, Protocol::ChatCompletions, &request, &options).unwrap();
    let choice = &response["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{response}");
    assert_eq!(
        choice["message"]["tool_calls"][0]["function"]["name"],
        "time"
    );
    assert_eq!(choice["message"].get("reasoning_content"), None);
}
