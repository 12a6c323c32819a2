//! One tool call a message, for templates that take no more.
//!
//! Llama's raise an exception at a message with several calls, gpt-oss's prints the first and
//! drops the others. Models make several now and then all the same, and conversations come from
//! other models too: such a turn is told call by call, each with its result behind it.

use serde_json::{Value, json};

/// Splits the turns with more calls than the template takes.
pub(super) fn apply(messages: &mut Vec<Value>, template: &str) {
    if !messages.iter().any(has_several) || !takes_one(template) {
        return;
    }
    let mut rest = std::mem::take(messages).into_iter().peekable();
    while let Some(mut message) = rest.next() {
        if !has_several(&message) {
            messages.push(message);
            continue;
        }
        let calls = match message["tool_calls"].take() {
            Value::Array(calls) => calls,
            _ => Vec::new(),
        };
        let mut results = Vec::new();
        while let Some(result) = rest.next_if(|next| next["role"] == "tool") {
            results.push(result);
        }
        for call in calls {
            let answers = |result: &Value| result.get("tool_call_id") == call.get("id");
            let result = results.iter().position(answers);
            message["tool_calls"] = json!([call]);
            // What the turn says beside its calls it says once.
            let next = json!({"role": message["role"], "content": ""});
            messages.push(std::mem::replace(&mut message, next));
            messages.extend(result.map(|index| results.remove(index)));
        }
        messages.extend(results);
    }
}

fn has_several(message: &Value) -> bool {
    message["tool_calls"]
        .as_array()
        .is_some_and(|calls| calls.len() > 1)
}

/// Whether a template reads the first call of a message and no other.
fn takes_one(template: &str) -> bool {
    template.contains("tool_calls[0]") || template.contains("tool_calls'][0]")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATE: &str = "{{ message.tool_calls[0].function.name }}";

    /// The messages that a template with this text is told.
    fn told(messages: &Value, template: &str) -> Value {
        let Value::Array(mut messages) = messages.clone() else {
            panic!("the messages are a list");
        };
        apply(&mut messages, template);
        Value::Array(messages)
    }

    fn conversation() -> Value {
        json!([
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Let me see.", "tool_calls": [{"id": "1"}, {"id": "2"}, {"id": "3"}]},
            {"role": "tool", "tool_call_id": "2", "content": "two"},
            {"role": "tool", "tool_call_id": "1", "content": "one"},
            {"role": "tool", "tool_call_id": "9", "content": "nine"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "4"}]},
            {"role": "tool", "tool_call_id": "4", "content": "four"},
        ])
    }

    #[test]
    fn each_call_is_a_turn_with_its_result() {
        let expected = json!([
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Let me see.", "tool_calls": [{"id": "1"}]},
            {"role": "tool", "tool_call_id": "1", "content": "one"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "2"}]},
            {"role": "tool", "tool_call_id": "2", "content": "two"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "3"}]},
            {"role": "tool", "tool_call_id": "9", "content": "nine"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "4"}]},
            {"role": "tool", "tool_call_id": "4", "content": "four"},
        ]);
        assert_eq!(told(&conversation(), TEMPLATE), expected);
    }

    #[test]
    fn without_ids_results_come_in_the_order_of_the_calls() {
        let messages = json!([
            {"role": "assistant", "content": "", "tool_calls": [{"function": "a"}, {"function": "b"}]},
            {"role": "tool", "content": "one"},
            {"role": "tool", "content": "two"},
        ]);
        let told = told(&messages, TEMPLATE);
        assert_eq!(told[0]["tool_calls"], json!([{"function": "a"}]));
        assert_eq!(told[1]["content"], "one");
        assert_eq!(told[2]["tool_calls"], json!([{"function": "b"}]));
        assert_eq!(told[3]["content"], "two");
    }

    #[test]
    fn other_templates_are_told_the_turn_as_it_is() {
        for template in ["", "{% if message.tool_calls | length > 0 %}{% endif %}"] {
            assert_eq!(told(&conversation(), template), conversation());
        }
    }
}
