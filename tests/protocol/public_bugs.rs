//! Faults that others reported of tools, reasoning and protocols, each with what is right here.

use mlxb::{Kind, Model, Protocol, RespondOptions};
use serde_json::{Value, json};

use crate::{respond, scripted};

fn weather() -> Value {
    json!({"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    }}})
}

/// Asks for the answer of this letter in Chat Completions; the one choice.
fn choice(model: &Model, letter: &str, more: &[(&str, Value)]) -> Value {
    let mut request = json!({
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [weather()],
        "chat_template_kwargs": {"script": letter},
    });
    for (key, value) in more {
        request[*key] = value.clone();
    }
    let options = RespondOptions::default();
    let (_, response) = respond(model, Protocol::ChatCompletions, &request, &options).unwrap();
    response["choices"][0].clone()
}

/// ml-explore/mlx-lm#905: a call that max_tokens cut was parsed as a whole one.
#[test]
fn a_call_that_is_cut_comes_back_as_text() {
    let model = scripted::load();
    for (max_tokens, end) in [(3, "<tool_call>"), (4, "\"arguments\":")] {
        let choice = choice(&model, "c", &[("max_tokens", json!(max_tokens))]);
        assert_eq!(choice["finish_reason"], "length");
        assert_eq!(choice["message"].get("tool_calls"), None);
        let content = choice["message"]["content"].as_str().unwrap();
        assert!(content.starts_with("I will look."), "{content}");
        assert!(content.trim_end().ends_with(end), "{content}");
    }
}

/// ml-explore/mlx-lm#1373, #1307: calls without a mark at their end were lost; #782: the reason
/// was "tool_call".
#[test]
fn a_call_that_ends_with_the_answer_is_a_call() {
    let template = "{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}\
        {% for message in messages %}{% if message.role == 'user' %}[INST]{{ message.content }}[/INST]\
        {% elif message.tool_calls %}{% for call in message.tool_calls %}\
        [TOOL_CALLS]{{ call.function.name }}[ARGS]{{ call.function.arguments | tojson }}{% endfor %}\
        {% else %}{{ message.content }}{% endif %}{% endfor %}{{ script }}";
    let scripts: &[(char, &[&str])] = &[
        (
            'a',
            &["[TOOL_CALLS]", "weather", "{\"city\": ", "\"Oslo\"}"],
        ),
        ('b', &["[TOOL_CALLS]weather[ARGS]", "{\"city\": \"Rome\"}"]),
    ];
    let model = scripted::load_with(template, scripts);
    for (letter, city) in [("a", "Oslo"), ("b", "Rome")] {
        let choice = choice(&model, letter, &[]);
        assert_eq!(choice["finish_reason"], "tool_calls", "{choice}");
        let call = &choice["message"]["tool_calls"][0]["function"];
        assert_eq!(call["name"], "weather");
        assert_eq!(call["arguments"], json!({"city": city}).to_string());
    }
}

/// ml-explore/mlx-lm#1417, #1239, #1756: an integer written as "2.0" dropped the call.
#[test]
fn arguments_that_miss_their_type_do_not_lose_the_call() {
    let template = "{% if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>\
        Reply in this format:\n<tool_call>\n<function=example_function_name>\n\
        <parameter=example_parameter_1>\nvalue_1\n</parameter>\n</function>\n</tool_call>\
        {% endif %}{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}\
        {% for call in message.tool_calls %}<tool_call>\n<function={{ call.function.name }}>\n\
        {% for name, value in call.function.arguments | items %}<parameter={{ name }}>\n{{ value }}\n\
        </parameter>\n{% endfor %}</function>\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}\
        <|im_start|>assistant\n{{ script }}";
    let scripts: &[(char, &[&str])] = &[
        (
            'a',
            &[
                "<tool_call>\n<function=weather\n",
                "<parameter=days>\n",
                "2.0\n</parameter>\n</function>\n",
                "</tool_call>",
            ],
        ),
        (
            'b',
            &[
                "<tool_call>\n<function=weather>\n<parameter=days>\n{two\n",
                "</parameter>\n</function>\n</tool_call>",
            ],
        ),
        (
            'c',
            &[
                "<tool_call>\n{\"name\": \"weather\\n\", ",
                "\"arguments\": {\"days\": \"3.0\"}}\n</tool_call>",
            ],
        ),
    ];
    let model = scripted::load_with(template, scripts);
    for (letter, days) in [("a", json!(2)), ("b", json!("{two")), ("c", json!(3))] {
        let choice = choice(&model, letter, &[]);
        let call = &choice["message"]["tool_calls"][0]["function"];
        assert_eq!(call["name"], "weather", "{choice}");
        assert_eq!(call["arguments"], json!({"days": days}).to_string());
    }
}

/// ml-explore/mlx-lm#1327: prompts of less than 11 tokens were refused.
#[test]
fn a_prompt_of_one_token_is_answered() {
    let model = scripted::load_with("{{ messages[0].content }}", &[('a', &["fine"])]);
    let request = json!({"messages": [{"role": "user", "content": "a"}]});
    let options = RespondOptions::default();
    let (_, response) = respond(&model, Protocol::ChatCompletions, &request, &options).unwrap();
    assert_eq!(response["choices"][0]["message"]["content"], "fine");
    assert_eq!(response["usage"]["prompt_tokens"], 1);
}

/// ddalcu/mlx-serve#365: a system message among the messages was dropped.
#[test]
fn the_prompt_holds_every_text_in_its_order() {
    let model = scripted::load();
    let request = json!({
        "max_tokens": 9,
        "system": [{"type": "text", "text": "one"}],
        "messages": [
            {"role": "system", "content": "two"},
            {"role": "user", "content": [{"type": "text", "text": "three"}, {"type": "text", "text": "four"}]},
            {"role": "assistant", "content": "five"},
            {"role": "system", "content": "six"},
            {"role": "user", "content": "seven"},
        ],
    });
    let chat = Protocol::Messages.to_chat(&request.to_string()).unwrap();
    let prompt = model.chat_template().unwrap().render(&chat).unwrap();
    let mut rest = prompt.as_str();
    for text in ["one", "two", "three", "four", "five", "six", "seven"] {
        let at = rest
            .find(text)
            .unwrap_or_else(|| panic!("no {text} in {prompt}"));
        rest = &rest[at + text.len()..];
    }
    for (role, content, named) in [
        ("wizard", json!("x"), "messages[0].role wizard"),
        (
            "user",
            json!([{"type": "hologram"}]),
            "messages[0].content[0].type hologram",
        ),
    ] {
        let request = json!({"max_tokens": 9, "messages": [{"role": role, "content": content}]});
        let error = Protocol::Messages
            .to_chat(&request.to_string())
            .unwrap_err();
        assert!(error.message().ends_with(named), "{error}");
    }
}

/// BerriAI/litellm#13420: a reasoning item in the input was refused; continuedev/continue#11785:
/// an output without its call.
#[test]
fn reasoning_and_call_are_one_turn_before_the_tools_output() {
    let mut request = json!({"input": [
        {"role": "user", "content": "Hi"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "why"}]},
        {"type": "function_call", "call_id": "1", "name": "weather", "arguments": "{\"city\": \"Oslo\"}"},
        {"type": "function_call_output", "call_id": "1", "output": "rain"},
    ]});
    let chat = Protocol::Responses.to_chat(&request.to_string()).unwrap();
    let roles: Vec<&Value> = chat["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["role"])
        .collect();
    assert_eq!(roles, ["user", "assistant", "tool"]);
    assert_eq!(chat["messages"][1]["reasoning_content"], "why");
    let prompt = scripted::load()
        .chat_template()
        .unwrap()
        .render(&chat)
        .unwrap();
    assert!(
        prompt.contains("<think>\nwhy\n</think>\n\n\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}"),
        "{prompt}"
    );
    request["input"].as_array_mut().unwrap().remove(2);
    let error = Protocol::Responses
        .to_chat(&request.to_string())
        .unwrap_err();
    assert_eq!(
        error.message(),
        "no tool call with this id comes before: input[2].call_id 1"
    );
}

/// ollama/ollama#17183, ml-explore/mlx-lm#1007: a wanted format was ignored without a word.
#[test]
fn what_is_known_but_not_done_is_an_error_that_names_it() {
    let schema = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {}}});
    for (protocol, key, value, named) in [
        (
            Protocol::ChatCompletions,
            "response_format",
            schema.clone(),
            "response_format.type json_schema",
        ),
        (Protocol::ChatCompletions, "n", json!(3), "n 3"),
        (
            Protocol::Responses,
            "text",
            json!({"format": schema}),
            "text.format.type json_schema",
        ),
        (
            Protocol::Responses,
            "background",
            json!(true),
            "background true",
        ),
        (
            Protocol::Messages,
            "output_config",
            json!({"format": schema}),
            "output_config.format",
        ),
        (Protocol::Messages, "container", json!("c"), "container c"),
    ] {
        let mut request = json!({"input": "Hi", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]});
        request[key] = value;
        let error = protocol.to_chat(&request.to_string()).unwrap_err();
        assert_eq!(error.kind(), Kind::Protocol);
        assert_eq!(error.message(), format!("not supported: {named}"));
    }
}

/// ml-explore/mlx-lm#1739: a message with tool calls had no content at all.
#[test]
fn a_message_always_has_content() {
    let model = scripted::load();
    let choice = choice(&model, "e", &[]);
    assert_eq!(choice["message"]["content"], "", "{choice}");
    assert_eq!(choice["message"]["tool_calls"].as_array().unwrap().len(), 1);
}
