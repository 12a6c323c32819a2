//! How much a model is to reason, in the words of its template.
//!
//! Requests say `reasoning_effort`. Templates read that, or a switch of another name, and
//! know some of its values.

use serde_json::{Map, Value};

/// What requests say.
const EFFORT: &str = "reasoning_effort";

/// Switches that turn reasoning on or off.
const SWITCHES: [&str; 2] = ["enable_thinking", "thinking"];

/// Sets the variables that a template reads to what `reasoning_effort` among them means.
/// What the request sets itself stays.
pub(super) fn apply(variables: &mut Map<String, Value>, template: &str) {
    let Some(Value::String(effort)) = variables.get(EFFORT).cloned() else {
        return;
    };
    let is_on = effort != "none";
    let mut set = |name: &str, value: Value| {
        if template.contains(name) {
            variables.entry(name).or_insert(value);
        }
    };
    for switch in SWITCHES {
        set(switch, is_on.into());
    }
    set(
        "thinking_mode",
        if is_on { "enabled" } else { "disabled" }.into(),
    );
    set("thinking_effort", known(&effort, template).into());
    if !is_on {
        set("thinking_budget", 0.into());
    }
    variables.insert(EFFORT.to_owned(), known(&effort, template).into());
}

/// The effort itself if the template knows it, else the next that it knows.
fn known(effort: &str, template: &str) -> String {
    let nearest: &[&str] = match effort {
        "none" => &["none", "no_think", "minimal", "low"],
        "minimal" => &["minimal", "low"],
        "medium" => &["medium", "high"],
        "high" => &["high", "max"],
        "xhigh" | "max" => &["xhigh", "max", "high"],
        _ => &[],
    };
    let is_quoted = |word: &str| {
        ['"', '\'']
            .iter()
            .any(|quote| template.contains(&format!("{quote}{word}{quote}")))
    };
    // A template that prints the word as it is was made for these three.
    let lists_words = ["low", "high"].iter().any(|word| is_quoted(word));
    let is_known = |word: &&&str| match lists_words {
        true => is_quoted(word),
        false => ["low", "medium", "high"].contains(*word),
    };
    nearest
        .iter()
        .find(is_known)
        .map_or(effort, |word| *word)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What a template with this text is told for an effort.
    fn told(effort: &str, template: &str) -> Value {
        let mut variables = Map::from_iter([(EFFORT.to_owned(), effort.into())]);
        apply(&mut variables, template);
        variables.into()
    }

    #[test]
    fn each_template_is_told_in_its_own_words() {
        for (template, effort, variables) in [
            (
                "{% if enable_thinking %}",
                "none",
                json!({"reasoning_effort": "low", "enable_thinking": false, "thinking": false}),
            ),
            (
                "{% if enable_thinking %}",
                "low",
                json!({"reasoning_effort": "low", "enable_thinking": true, "thinking": true}),
            ),
            (
                "Reasoning: {{ reasoning_effort }}",
                "high",
                json!({"reasoning_effort": "high"}),
            ),
            (
                "Reasoning: {{ reasoning_effort }}",
                "minimal",
                json!({"reasoning_effort": "low"}),
            ),
            (
                "Reasoning: {{ reasoning_effort }}",
                "xhigh",
                json!({"reasoning_effort": "high"}),
            ),
            (
                "{% if reasoning_effort in ['high', 'low', 'no_think'] %}",
                "none",
                json!({"reasoning_effort": "no_think"}),
            ),
            (
                "{% if reasoning_effort in ['high', 'low', 'no_think'] %}",
                "medium",
                json!({"reasoning_effort": "high"}),
            ),
            (
                "{% if thinking_budget == 0 %}",
                "none",
                json!({"reasoning_effort": "low", "thinking_budget": 0, "thinking": false}),
            ),
            (
                "{% if reasoning_effort == 'high' or 'max' %}",
                "xhigh",
                json!({"reasoning_effort": "max"}),
            ),
            (
                "{{ reasoning_effort }}",
                "some",
                json!({"reasoning_effort": "some"}),
            ),
        ] {
            assert_eq!(told(effort, template), variables, "{template}: {effort}");
        }
    }

    #[test]
    fn what_a_request_sets_stays() {
        let mut variables = Map::from_iter([
            (EFFORT.to_owned(), "high".into()),
            ("thinking".to_owned(), false.into()),
        ]);
        apply(&mut variables, "{% if thinking %}");
        assert_eq!(variables["thinking"], false);
        let mut variables = Map::from_iter([("x".to_owned(), 1.into())]);
        apply(&mut variables, "{% if thinking %}");
        assert_eq!(variables.len(), 1);
    }
}
