//! Whether a chat template knows about tools.

use serde_json::Value;

/// Whether the template's code (not its text) mentions `tools`.
pub(crate) fn mentions_tools(template: &str) -> bool {
    let mut rest = template;
    while let Some(start) = rest.find('{') {
        let code = &rest[start..];
        let end = match code.as_bytes().get(1) {
            Some(b'%') => "%}",
            Some(b'{') => "}}",
            _ => {
                rest = &code[1..];
                continue;
            }
        };
        let Some(length) = code[2..].find(end) else {
            return false;
        };
        if has_word(&code[2..2 + length], "tools") {
            return true;
        }
        rest = &code[2 + length..];
    }
    false
}

fn has_word(code: &str, word: &str) -> bool {
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|part| part == word)
}

/// The same of `tokenizer_config.json`, whose `chat_template` is a template or a list of named
/// ones.
pub(crate) fn config_mentions_tools(tokenizer_config: &Value) -> bool {
    match tokenizer_config.get("chat_template") {
        Some(Value::String(template)) => mentions_tools(template),
        Some(Value::Array(named)) => named.iter().any(|entry| {
            entry.get("name").and_then(Value::as_str) == Some("tool_use")
                || entry
                    .get("template")
                    .and_then(Value::as_str)
                    .is_some_and(mentions_tools)
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tools_count_in_code() {
        for (template, expected) in [
            ("{% if tools %}x{% endif %}", true),
            ("{%- for tool in tools -%}{%- endfor -%}", true),
            ("{{ tools | tojson }}", true),
            ("use tools {% if messages %}{% endif %}", false),
            ("{# tools #}{{ messages }}", false),
            ("{% if tools_in_user_message %}{% endif %}", false),
            ("{% if tools", false),
            ("{", false),
            ("{\u{20ac}{{ tools }}", true),
            ("", false),
        ] {
            assert_eq!(mentions_tools(template), expected, "{template}");
        }
    }

    #[test]
    fn a_list_of_templates_counts_by_its_names_too() {
        for (config, expected) in [
            (json!({ "chat_template": "{{ tools }}" }), true),
            (
                json!({ "chat_template": [{ "name": "tool_use", "template": "" }] }),
                true,
            ),
            (
                json!({ "chat_template": [{ "name": "default", "template": "{{ tools }}" }] }),
                true,
            ),
            (
                json!({ "chat_template": [{ "name": "default", "template": "x" }] }),
                false,
            ),
            (json!({}), false),
        ] {
            assert_eq!(config_mentions_tools(&config), expected, "{config}");
        }
    }
}
