//! Ids of tool calls in the form that a template takes.
//!
//! Clients repeat the ids that they were given, whoever gave them. Mistral's templates print
//! them, and refuse any that is not nine characters long.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

/// The length that some templates insist on, in characters.
const LENGTH: usize = 9;

/// Gives the calls among the messages, and what answers them, ids of the length that the template
/// insists on. The same conversation has the same ids each time, and keeps them as it grows.
pub(super) fn apply(messages: &mut [Value], template: &str) {
    if !insists(template) {
        return;
    }
    let mut ids = ids_of(messages);
    let mut taken: HashSet<String> = ids.iter().map(|id| (**id).clone()).collect();
    let mut names: HashMap<String, String> = HashMap::new();
    let mut numbers = 0_u32..;
    for id in &mut ids {
        if id.chars().count() == LENGTH {
            continue;
        }
        let name = names.entry((**id).clone()).or_insert_with(|| {
            let mut free = numbers
                .by_ref()
                .map(|number| format!("tool{number:05}"))
                .filter(|name| !taken.contains(name));
            free.next().unwrap_or_default()
        });
        taken.insert(name.clone());
        (**id).clone_from(name);
    }
}

/// Whether a template refuses ids of another length.
fn insists(template: &str) -> bool {
    let compact: String = template.split_whitespace().collect();
    compact.contains("length!=9")
}

/// The ids of all calls and results, in their order.
fn ids_of(messages: &mut [Value]) -> Vec<&mut String> {
    let mut ids = Vec::new();
    for message in messages {
        let Value::Object(message) = message else {
            continue;
        };
        for (key, value) in message {
            match (key.as_str(), value) {
                ("tool_call_id", Value::String(id)) => ids.push(id),
                ("tool_calls", Value::Array(calls)) => {
                    let of_calls = calls
                        .iter_mut()
                        .filter_map(|call| match call.get_mut("id") {
                            Some(Value::String(id)) => Some(id),
                            _ => None,
                        });
                    ids.extend(of_calls);
                }
                _ => {}
            }
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TEMPLATE: &str = "{% if call.id | length  !=  9 %}{{ raise_exception('no') }}{% endif %}";

    /// The ids that a template with this text is told.
    fn told(messages: Value, template: &str) -> Vec<String> {
        let Value::Array(mut messages) = messages else {
            panic!("the messages are a list");
        };
        apply(&mut messages, template);
        ids_of(&mut messages)
            .into_iter()
            .map(|id| id.clone())
            .collect()
    }

    fn conversation() -> Value {
        json!([
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "tool_calls": [{"id": "call_00ff"}, {"id": "toolu_1"}, {}]},
            {"role": "tool", "tool_call_id": "toolu_1", "content": "2"},
            {"role": "tool", "tool_call_id": "call_00ff", "content": "1"},
            {"role": "assistant", "tool_calls": [{"id": "fc"}]},
        ])
    }

    #[test]
    fn a_template_that_insists_on_a_length_is_told_ids_of_it() {
        let expected = [
            "call_00ff",
            "tool00000",
            "tool00000",
            "call_00ff",
            "tool00001",
        ];
        assert_eq!(told(conversation(), TEMPLATE), expected);
    }

    #[test]
    fn other_templates_are_told_the_ids_as_they_are() {
        let expected = ["call_00ff", "toolu_1", "toolu_1", "call_00ff", "fc"];
        for template in ["", "{{ call.id }}", "{% if ids | length != 1 %}{% endif %}"] {
            assert_eq!(told(conversation(), template), expected);
        }
    }

    #[test]
    fn a_name_in_use_is_not_given_again() {
        let messages = json!([
            {"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "tool00000"}, {"id": "b"}]},
        ]);
        assert_eq!(
            told(messages, TEMPLATE),
            ["tool00001", "tool00000", "tool00002"]
        );
    }
}
