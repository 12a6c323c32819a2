//! Requests of Messages.

use super::*;
use crate::protocol::tools::ToolChoice;

const P: Protocol = Protocol::Messages;

fn base() -> Value {
    json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]})
}

fn turn_of(messages: Value) -> ChatTurn {
    read(P, &with(&base(), "messages", messages)).unwrap()
}

#[test]
fn all_text_arrives_in_its_order() {
    let mut request = with(
        &base(),
        "messages",
        json!([
            {"role": "system", "content": "three"},
            {"role": "user", "content": "four"},
            {"role": "user", "content": [{"type": "text", "text": "five", "cache_control": {"type": "ephemeral"}}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "why", "signature": "s"},
                {"type": "text", "text": "six"}]},
            {"role": "system", "content": [{"type": "text", "text": "seven"}]},
            {"role": "user", "content": "eight"},
        ]),
    );
    request["system"] = json!([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]);
    assert_eq!(
        json!(read(P, &request).unwrap().messages),
        json!([
            {"role": "system", "content": "one\ntwo\n\nthree"},
            {"role": "user", "content": "four\n\nfive"},
            {"role": "assistant", "reasoning_content": "why", "content": "six"},
            {"role": "system", "content": "seven"},
            {"role": "user", "content": "eight"},
        ])
    );
}

#[test]
fn tool_results_are_messages_of_their_own() {
    let turn = turn_of(json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [
            {"type": "text", "text": "Let me see"},
            {"type": "tool_use", "id": "1", "name": "add", "input": {"b": 2, "a": 1}},
            {"type": "tool_use", "id": "2", "name": "sub", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "3"}]},
            {"type": "tool_result", "tool_use_id": "2", "is_error": true},
            {"type": "text", "text": "Well?"}]},
    ]));
    assert_eq!(
        json!(turn.messages[1..]),
        json!([
            {"role": "assistant", "content": "Let me see", "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "add", "arguments": {"b": 2, "a": 1}}},
                {"id": "2", "type": "function", "function": {"name": "sub", "arguments": {}}}]},
            {"role": "tool", "tool_call_id": "1", "name": "add", "content": "3"},
            {"role": "tool", "tool_call_id": "2", "name": "sub", "content": "", "is_error": true},
            {"role": "user", "content": "Well?"},
        ])
    );
    assert!(!turn.continues_last_message);
}

#[test]
fn an_answer_that_was_begun_goes_on() {
    let turn = turn_of(json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Once upon"},
    ]));
    assert!(turn.continues_last_message);
    assert_eq!(turn.to_chat()["continue_final_message"], true);
}

#[test]
fn a_tool_is_chosen() {
    let tools = with(
        &base(),
        "tools",
        json!([messages_tool("add"), messages_tool("sub")]),
    );
    assert_eq!(
        read(P, &tools).unwrap().to_chat()["tools"].to_string(),
        json!([nested_tool("add"), nested_tool("sub")]).to_string()
    );
    for (choice, expected, parallel) in [
        (json!({"type": "auto"}), ToolChoice::Auto, true),
        (json!({"type": "none"}), ToolChoice::None, true),
        (
            json!({"type": "any", "disable_parallel_tool_use": true}),
            ToolChoice::Required,
            false,
        ),
        (
            json!({"type": "tool", "name": "sub"}),
            ToolChoice::Named("sub".into()),
            true,
        ),
    ] {
        let turn = read(P, &with(&tools, "tool_choice", choice)).unwrap();
        assert_eq!(
            (turn.tool_choice, turn.parallel_tool_calls),
            (expected, parallel)
        );
    }
    for (choice, named) in [
        (json!({"type": "required"}), "tool_choice.type required"),
        (
            json!({"type": "tool", "name": "mul"}),
            "tool_choice.name mul",
        ),
        (json!({"type": "tool"}), "tool_choice.name"),
        (json!("any"), "tool_choice"),
    ] {
        assert_refused(P, &with(&tools, "tool_choice", choice), named);
    }
}

#[test]
fn thinking_and_effort_switch_the_templates_reasoning() {
    for (key, value, variables) in [
        (
            "thinking",
            json!({"type": "disabled"}),
            json!({"reasoning_effort": "none", "enable_thinking": false, "thinking": false}),
        ),
        (
            "thinking",
            json!({"type": "enabled", "budget_tokens": 1024}),
            json!({"enable_thinking": true, "thinking": true}),
        ),
        (
            "thinking",
            json!({"type": "adaptive"}),
            json!({"enable_thinking": true, "thinking": true}),
        ),
        (
            "output_config",
            json!({"effort": "low"}),
            json!({"reasoning_effort": "low"}),
        ),
    ] {
        let chat = read(P, &with(&base(), key, value)).unwrap().to_chat();
        assert_eq!(chat["chat_template_kwargs"], variables);
    }
}

#[test]
fn a_prompt_can_be_run_without_an_answer() {
    let turn = read(P, &with(&base(), "max_tokens", json!(0))).unwrap();
    assert_eq!(turn.max_tokens, Some(0));
}

#[test]
fn what_is_known_but_not_done_is_named() {
    for (key, value, named) in [
        ("max_tokens", Value::Null, "max_tokens"),
        ("messages", json!([]), "messages"),
        (
            "thinking",
            json!({"type": "enabled"}),
            "thinking.budget_tokens",
        ),
        (
            "thinking",
            json!({"type": "between_tools"}),
            "thinking.type between_tools",
        ),
        (
            "thinking",
            json!({"type": "adaptive", "display": "omitted"}),
            "thinking.display omitted",
        ),
        (
            "output_config",
            json!({"format": {"type": "json_schema"}}),
            "output_config.format",
        ),
        ("container", json!("c"), "container c"),
        ("mcp_servers", json!([{}]), "mcp_servers"),
        (
            "context_management",
            json!({"edits": [{"type": "clear_tool_uses_20250919"}]}),
            "context_management.edits[0].type clear_tool_uses_20250919",
        ),
        (
            "context_management",
            json!({"edits": [{"type": "clear_thinking_20251015"}]}),
            "context_management.edits[0].type clear_thinking_20251015",
        ),
        (
            "context_management",
            json!({"edits": [{"type": "clear_thinking_20251015",
                "keep": {"type": "thinking_turns", "value": 1}}]}),
            "context_management.edits[0].keep",
        ),
        (
            "output_format",
            json!({"type": "json_schema"}),
            "output_format",
        ),
        ("compaction", json!({}), "compaction"),
        ("thread", json!({"type": "create"}), "thread"),
        ("fallbacks", json!([{"model": "m"}]), "fallbacks"),
        (
            "output_config",
            json!({"task_budget": {"type": "tokens", "total": 9}}),
            "output_config.task_budget",
        ),
        ("speed", json!("fast"), "speed fast"),
        ("service_tier", json!("priority"), "service_tier priority"),
        ("stop_sequences", json!([""]), "stop_sequences"),
        (
            "tools",
            json!([{"type": "bash_20250124", "name": "bash"}]),
            "tools[0].type bash_20250124",
        ),
        ("tools", json!([{"name": "f"}]), "tools[0].input_schema"),
        (
            "tools",
            json!([{"name": "f", "input_schema": {}, "defer_loading": true}]),
            "tools[0].defer_loading true",
        ),
        ("system", json!([{"type": "image"}]), "system[0].type image"),
        ("system", json!(1), "system"),
    ] {
        assert_refused(P, &with(&base(), key, value), named);
    }
    for (role, block, named) in [
        ("user", json!({"type": "image", "source": {}}), "type image"),
        (
            "user",
            json!({"type": "document", "source": {}}),
            "type document",
        ),
        (
            "user",
            json!({"type": "thinking", "thinking": "x"}),
            "type thinking",
        ),
        ("user", json!({"type": "hologram"}), "type hologram"),
        (
            "user",
            json!({"type": "tool_result", "tool_use_id": "7"}),
            "tool_use_id 7",
        ),
        ("user", json!({"type": "tool_result"}), "tool_use_id"),
        (
            "assistant",
            json!({"type": "redacted_thinking", "data": "x"}),
            "type redacted_thinking",
        ),
        (
            "assistant",
            json!({"type": "server_tool_use"}),
            "type server_tool_use",
        ),
        (
            "assistant",
            json!({"type": "tool_use", "id": "1", "name": "f"}),
            "input",
        ),
    ] {
        let request = with(
            &base(),
            "messages",
            json!([{"role": role, "content": [block]}]),
        );
        assert_refused(P, &request, &format!("messages[0].content[0].{named}"));
    }
    let wizard = json!([{"role": "wizard", "content": "x"}]);
    assert_refused(
        P,
        &with(&base(), "messages", wizard),
        "messages[0].role wizard",
    );
}

#[test]
fn what_asks_for_the_default_is_accepted() {
    for (key, value) in [
        ("stream", json!(true)),
        ("metadata", json!({"user_id": "u"})),
        ("service_tier", json!("auto")),
        ("service_tier", json!("standard_only")),
        ("speed", json!("standard")),
        ("cache_control", json!({"type": "ephemeral"})),
        ("mcp_servers", json!([])),
        ("fallbacks", json!("default")),
        ("context_management", json!({})),
        (
            "context_management",
            json!({"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}),
        ),
        (
            "output_config",
            json!({"format": null, "task_budget": null}),
        ),
        ("tools", json!([])),
        ("inference_geo", json!("eu")),
    ] {
        let turn = read(P, &with(&base(), key, value)).unwrap();
        assert_eq!(turn.to_chat(), json!({"messages": base()["messages"]}));
        assert_eq!(turn.max_tokens, Some(9));
    }
}
