//! What clients of the wire protocols send, through real templates.

use serde_json::{Value, json};

use super::ChatTemplate;
use super::output::real_templates::templates;
use crate::protocol::Protocol;
use crate::tokenizer::tests::with_bos;

/// An agent's conversation in each protocol: two calls, their results, an answer and a question
/// in two messages, with ids as the protocol's own service makes them.
fn requests() -> [(Protocol, Value); 3] {
    let schema =
        json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let function = json!({"name": "weather", "description": "Tells it.", "parameters": schema});
    let arguments = |city: &str| json!({"city": city}).to_string();
    let call = |id: &str, city: &str| {
        json!({"id": id, "type": "function",
            "function": {"name": "weather", "arguments": arguments(city)}})
    };
    let item = |id: &str, city: &str| {
        json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "status": "completed",
            "name": "weather", "arguments": arguments(city)})
    };
    let (one, two) = ("call_8f3b2c1d9e4a4f0b", "call_0a1b2c3d4e5f6071");
    let chat = json!({
        "tools": [{"type": "function", "function": function}],
        "messages": [
            {"role": "system", "content": "Say-first."},
            {"role": "user", "content": [{"type": "text", "text": "Say-second?"}]},
            {"role": "assistant", "content": null, "tool_calls": [call(one, "Oslo"), call(two, "Rome")]},
            {"role": "tool", "tool_call_id": one, "content": "Say-third."},
            {"role": "tool", "tool_call_id": two, "content": "Say-fourth."},
            {"role": "assistant", "content": "Say-fifth."},
            {"role": "user", "content": "Say-sixth."},
            {"role": "user", "content": "Say-seventh?"},
        ],
    });
    let mut flat = function.clone();
    flat["type"] = json!("function");
    let responses = json!({
        "instructions": "Say-first.",
        "tools": [flat],
        "input": [
            {"role": "user", "content": "Say-second?"},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [
                {"type": "reasoning_text", "text": "I should look."}]},
            item(one, "Oslo"), item(two, "Rome"),
            {"type": "function_call_output", "call_id": one, "output": "Say-third."},
            {"type": "function_call_output", "call_id": two, "output": [
                {"type": "input_text", "text": "Say-fourth."}]},
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
                {"type": "output_text", "text": "Say-fifth.", "annotations": []}]},
            {"role": "user", "content": "Say-sixth."},
            {"role": "user", "content": "Say-seventh?"},
        ],
    });
    let messages = json!({
        "max_tokens": 9,
        "system": [{"type": "text", "text": "Say-first.", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "weather", "description": "Tells it.", "input_schema": schema}],
        "messages": [
            {"role": "user", "content": "Say-second?"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "I should look.", "signature": "s"},
                {"type": "tool_use", "id": one, "name": "weather", "input": {"city": "Oslo"}},
                {"type": "tool_use", "id": two, "name": "weather", "input": {"city": "Rome"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": one, "content": "Say-third."},
                {"type": "tool_result", "tool_use_id": two, "content": [
                    {"type": "text", "text": "Say-fourth."}]}]},
            {"role": "assistant", "content": "Say-fifth."},
            {"role": "user", "content": "Say-sixth."},
            {"role": "user", "content": "Say-seventh?"},
        ],
    });
    [
        (Protocol::ChatCompletions, chat),
        (Protocol::Responses, responses),
        (Protocol::Messages, messages),
    ]
}

/// Texts of the conversation, each before the next. A result comes behind its call, be the
/// other call between them or not.
const ORDERS: [&[&str]; 3] = [
    &[
        "Say-second",
        "Say-third",
        "Say-fourth",
        "Say-fifth",
        "Say-sixth",
        "Say-seventh",
    ],
    &["Say-second", "Oslo", "Say-third"],
    &["Say-second", "Oslo", "Rome", "Say-fourth"],
];

/// Templates that cannot tell such a conversation, with the reason.
const UNABLE: &[(&str, &str)] = &[
    (
        "CohereForAI-c4ai-command-r-plus-tool_use",
        "each parameter of a tool needs a description",
    ),
    (
        "Kimi-K2-Instruct",
        "appends to a list, which the engine's are not made for",
    ),
    (
        "Kimi-K2-Thinking",
        "appends to a list, which the engine's are not made for",
    ),
    (
        "fireworks-ai-llama-3-firefunction-v2",
        "takes the tools as a text of its own",
    ),
    (
        "google-gemma-2-2b-it",
        "refuses system messages and results of tools",
    ),
    ("llama-cpp-rwkv-world", "knows no tools"),
    (
        "meetkai-functionary-medium-v3.2",
        "takes the arguments of calls as text",
    ),
    ("microsoft-Phi-3.5-mini-instruct", "knows no tools"),
];

/// Templates that print no calls, or not these.
const WITHOUT_CALLS: &[&str] = &[
    "HuggingFaceTB-SmolLM3-3B",
    "LFM2-8B-A1B",
    "LFM2.5-Instruct",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "ibm-granite-granite-3.3-2B-Instruct",
];

#[test]
fn real_templates_take_the_conversations_of_agents() {
    let tokenizer = with_bos();
    let mut count = 0;
    for file in std::fs::read_dir(templates()).unwrap() {
        let file = file.unwrap().path();
        let name = file.file_stem().expect("a name").to_string_lossy();
        if UNABLE.iter().any(|(unable, _)| *unable == name) {
            continue;
        }
        let scratch = tempfile::tempdir().unwrap();
        std::fs::copy(&file, scratch.path().join("chat_template.jinja")).unwrap();
        let template = ChatTemplate::load(scratch.path(), &tokenizer).unwrap();
        for (protocol, request) in requests() {
            let mut chat = protocol.to_chat(&request.to_string()).unwrap();
            chat["eos_token"] = json!("</s>");
            let fitted = template.fitted(&chat).unwrap();
            let prompt = match template.render_request(&fitted) {
                Ok(prompt) => prompt,
                Err(error) => panic!("{name}, {protocol:?}: {error}"),
            };
            // Some write it behind the conversation.
            assert!(
                prompt.contains("Say-first"),
                "{name}, {protocol:?}: {prompt}"
            );
            let prints_calls = !WITHOUT_CALLS.contains(&name.as_ref());
            for order in &ORDERS[..if prints_calls { 3 } else { 1 }] {
                let mut rest = prompt.as_str();
                for text in *order {
                    let at = rest.find(text);
                    let at =
                        at.unwrap_or_else(|| panic!("{name}, {protocol:?}: no {text} in {prompt}"));
                    rest = &rest[at..];
                }
            }
            count += 1;
        }
    }
    assert!(count > 150, "{count}");
}
