//! A model that speaks in channels, as gpt-oss does: each protocol gets reasoning, text and calls.

use mlxb::{Protocol, RespondOptions};
use serde_json::{Value, json};

use crate::{PROTOCOLS, respond, scripted, text_of};

const TEMPLATE: &str = "{% for tool in tools %}namespace functions { {{ tool.function.name }} }\
    {% endfor %}{% for message in messages %}<|start|>{{ message.role }}<|channel|>final<|message|>\
    {{ message.content }}<|end|>{% endfor %}<|start|>assistant{{ script }}";

const SCRIPTS: &[(char, &[&str])] = &[
    // White space, which means nothing where it asks for an answer.
    (
        '\t',
        &[
            "<|channel|>analysis",
            "<|message|>Let",
            " me see.",
            "<|end|>",
            "<|start|>assistant",
            "<|channel|>final",
            "<|message|> ",
            "It is noon.",
        ],
    ),
    (
        '\n',
        &[
            "<|channel|>analysis<|message|>I should look.<|end|>",
            "<|start|>assistant<|channel|>commentary to=functions.time <|constrain|>json",
            "<|message|>{\"zone\":",
            " \"CET\"}",
        ],
    ),
    // What follows the beginning of a call that must be made.
    ('>', &["{\"zone\": \"UTC\"}"]),
    (
        '.',
        &["time<|channel|>commentary<|message|>{\"zone\": \"EET\"}"],
    ),
];

fn request(protocol: Protocol, script: &str, must_call: bool) -> Value {
    let schema = json!({"type": "object", "properties": {"zone": {"type": "string"}}});
    let function = json!({"name": "time", "parameters": schema});
    let (mut request, tool, choice) = match protocol {
        Protocol::Responses => (
            json!({"input": "Hi"}),
            json!({"type": "function", "name": "time", "parameters": schema}),
            json!({"type": "function", "name": "time"}),
        ),
        Protocol::ChatCompletions => (
            json!({"messages": [{"role": "user", "content": "Hi"}]}),
            json!({"type": "function", "function": function}),
            json!({"type": "function", "function": {"name": "time"}}),
        ),
        _ => (
            json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 64}),
            json!({"name": "time", "input_schema": schema}),
            json!({"type": "tool", "name": "time"}),
        ),
    };
    request["tools"] = json!([tool]);
    request["chat_template_kwargs"] = json!({"script": script});
    if must_call {
        request["tool_choice"] = choice;
    }
    request
}

/// The reasoning of an answer, and the arguments of its only call.
fn parts(protocol: Protocol, response: &Value) -> (String, Option<Value>) {
    let arguments = |text: &Value| serde_json::from_str(text.as_str()?).ok();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let find = |list: &Value, kind: &str| -> Value {
        let mut items = list.as_array().unwrap().iter();
        items
            .find(|item| item["type"] == kind)
            .cloned()
            .unwrap_or_default()
    };
    match protocol {
        Protocol::ChatCompletions => {
            let message = &response["choices"][0]["message"];
            let call = &message["tool_calls"][0]["function"];
            (
                text(&message["reasoning_content"]),
                arguments(&call["arguments"]),
            )
        }
        Protocol::Messages => {
            let thinking = find(&response["content"], "thinking");
            let input = find(&response["content"], "tool_use")["input"].clone();
            (
                text(&thinking["thinking"]),
                Some(input).filter(Value::is_object),
            )
        }
        _ => {
            let reasoning = find(&response["output"], "reasoning");
            let call = find(&response["output"], "function_call");
            (
                text(&reasoning["content"][0]["text"]),
                arguments(&call["arguments"]),
            )
        }
    }
}

#[test]
fn channels_become_reasoning_text_and_calls() {
    let model = scripted::load_with(TEMPLATE, SCRIPTS);
    let options = RespondOptions::default();
    for protocol in PROTOCOLS {
        let answer = |script: &str, must_call: bool| {
            let request = request(protocol, script, must_call);
            respond(&model, protocol, &request, &options).unwrap().1
        };
        let whole = answer("\t", false);
        assert_eq!(
            parts(protocol, &whole),
            ("Let me see.".into(), None),
            "{whole}"
        );
        assert_eq!(text_of(protocol, &whole).trim(), "It is noon.");
        let whole = answer("\n", false);
        let call = Some(json!({"zone": "CET"}));
        assert_eq!(
            parts(protocol, &whole),
            ("I should look.".into(), call),
            "{whole}"
        );
        let whole = answer("", true);
        assert_eq!(
            parts(protocol, &whole).1,
            Some(json!({"zone": "UTC"})),
            "{whole}"
        );
    }
}
