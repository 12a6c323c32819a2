//! One message a turn, for templates that want roles to alternate.
//!
//! Mistral's and Gemma's raise an exception at two messages of the user's in a row. Clients send
//! such: what was asked again after an answer that failed, or a document before a question.

use serde_json::Value;

/// Between texts that were messages of their own.
const BETWEEN: &str = "\n\n";

/// Joins the user's messages that follow each other, and the assistant's without calls, where
/// the template refuses them.
pub(super) fn apply(messages: &mut Vec<Value>, template: &str) {
    if !template.contains("roles must alternate") {
        return;
    }
    messages.dedup_by(|next, last| joins(last, next));
}

/// Whether a message could take the next one in.
fn joins(last: &mut Value, next: &Value) -> bool {
    let is_joined = (last["role"] == "user" || last["role"] == "assistant")
        && last["role"] == next["role"]
        && last.get("tool_calls").is_none()
        && next.get("tool_calls").is_none()
        && next.get("reasoning_content").is_none();
    match (last.get_mut("content"), next.get("content")) {
        (Some(Value::String(text)), Some(Value::String(more))) if is_joined => {
            if !text.is_empty() && !more.is_empty() {
                text.push_str(BETWEEN);
            }
            text.push_str(more);
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TEMPLATE: &str =
        "{{ raise_exception('conversation roles must alternate user/assistant') }}";

    fn conversation() -> Vec<Value> {
        let conversation = json!([
            {"role": "system", "content": "s"},
            {"role": "system", "content": "t"},
            {"role": "user", "content": "a"},
            {"role": "user", "content": "b"},
            {"role": "user", "content": ""},
            {"role": "assistant", "reasoning_content": "why", "content": "c"},
            {"role": "assistant", "content": "d"},
            {"role": "assistant", "content": "", "tool_calls": [{}]},
            {"role": "tool", "content": "e"},
            {"role": "tool", "content": "f"},
            {"role": "user", "content": [{"type": "text", "text": "g"}]},
            {"role": "user", "content": "h"},
        ]);
        conversation.as_array().unwrap().clone()
    }

    #[test]
    fn messages_of_one_role_are_joined_but_for_those_about_calls() {
        let mut messages = conversation();
        apply(&mut messages, TEMPLATE);
        assert_eq!(
            json!(messages),
            json!([
                {"role": "system", "content": "s"},
                {"role": "system", "content": "t"},
                {"role": "user", "content": "a\n\nb"},
                {"role": "assistant", "reasoning_content": "why", "content": "c\n\nd"},
                {"role": "assistant", "content": "", "tool_calls": [{}]},
                {"role": "tool", "content": "e"},
                {"role": "tool", "content": "f"},
                {"role": "user", "content": [{"type": "text", "text": "g"}]},
                {"role": "user", "content": "h"},
            ])
        );
    }

    #[test]
    fn other_templates_are_told_each_message() {
        let mut messages = conversation();
        apply(&mut messages, "{{ messages[0].content }}");
        assert_eq!(messages, conversation());
    }
}
