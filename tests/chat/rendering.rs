//! Rendered prompts, byte for byte.

use std::collections::BTreeMap;

use super::reference::{Outcome, fetched, load, script};

/// Cells that differ, with the reason.
const DIFFERENCES: &[(&str, &[&str], &str)] = &[
    (
        "Cohere2MoE",
        &["documents"],
        "the template iterates over tools without asking whether there are any: Python fails",
    ),
    (
        "llama-cpp-deepseek-r1",
        WITH_TOOLS,
        "written for another engine: the template prints a generator as JSON, Python fails",
    ),
    (
        "meetkai-functionary-medium-v3.1",
        WITH_TOOLS,
        "Python escapes for HTML whatever is joined to a text marked as safe",
    ),
];

const WITH_TOOLS: &[&str] = &[
    "tools",
    "tool result",
    "tool result and answer",
    "parallel calls",
    "reasoning between tools",
    "calls without text",
];

#[test]
#[expect(clippy::print_stdout, reason = "a test may say what it compared")]
fn real_templates_render_as_in_python() {
    let folder = fetched().join("templates");
    let cells = script("reference.py", &["cells", folder.to_str().expect("utf-8")]);
    let mut templates = BTreeMap::new();
    let mut differing = Vec::new();
    let mut total = 0;
    for cell in &cells {
        let text = |key: &str| cell[key].as_str().expect("the script's format");
        let (name, conversation) = (text("template"), text("conversation"));
        let template = templates.entry(name).or_insert_with(|| {
            let scratch = tempfile::tempdir().expect("a temporary folder");
            let source =
                std::fs::read_to_string(folder.join(format!("{name}.jinja"))).expect("fetched");
            load(&source, scratch.path())
        });
        // Templates of this name are only chosen for requests with tools.
        if name.ends_with("tool_use") && cell["request"].get("tools").is_none() {
            continue;
        }
        total += 1;
        let expected = Outcome::of_reference(&cell["outcome"]);
        let result = match template {
            Ok(template) => template.render(&cell["request"]),
            Err(error) => Err(mlxb::Error::new(error.kind(), error.message())),
        };
        if Outcome::of(&result) != expected {
            let result = result.map_err(|error| error.to_string());
            differing.push((name, conversation, cell["outcome"].clone(), result));
        }
    }
    println!(
        "{} templates, {total} cells, {} differ",
        templates.len(),
        differing.len()
    );
    assert!(templates.len() >= 60, "only {} templates", templates.len());
    assert!(
        differing.len() * 50 <= total,
        "more than 2 % of the cells differ"
    );
    let is_listed = |template: &str, conversation: &str| {
        let mut listed = DIFFERENCES.iter();
        listed.any(|(name, cells, _)| *name == template && cells.contains(&conversation))
    };
    for (template, conversation, expected, result) in &differing {
        assert!(
            is_listed(template, conversation),
            "{template}, {conversation}:\nreference {expected}\nhere      {result:?}"
        );
    }
    let listed: usize = DIFFERENCES.iter().map(|(_, cells, _)| cells.len()).sum();
    assert_eq!(differing.len(), listed, "a listed difference is gone");
}

/// Snippets whose outcome differs, with the reason.
const SNIPPET_DIFFERENCES: &[(&str, &str)] = &[
    (
        "{{ '%s and %d and %.2f' % ('a', 3, 1.5) }} {{ '%s' % 'x' }} {{ '%r' % 'x' }} {{ '%05d|%-5s|' % (3, 'a') }}",
        "the engine has no % operator for texts, only the format filter",
    ),
    (
        "{% if x.items %}yes{% endif %} {{ x.items.type is defined }}",
        "an attribute of a mapping is its entry, a method only where it is called",
    ),
    (
        "{% if x.keys %}yes{% else %}no{% endif %}{% if x.update %}yes{% endif %}{% if x.foo %}yes{% endif %}",
        "as above",
    ),
    (
        "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, a=3) }}",
        "macros have no varargs",
    ),
    (
        "{{ '-'.join([1, 2]) }}",
        "Python refuses to join what is no text",
    ),
    (
        "{{ z | string }}|{{ z ~ 'a' }}|{{ [z] }}|{{ z | replace('a', 'b') }}|{{ z | int }}|{{ z | first is defined }}",
        "Python refuses the first item of what is undefined",
    ),
    ("{{ z > 1 }}", "Python refuses to order what is undefined"),
    (
        "{{ 1 in 'abc1' }}",
        "Python refuses to look for a number in a text",
    ),
    (
        "{{ 'a' < 1 }}",
        "Python refuses to order a text and a number",
    ),
    ("{{ none < 1 }}", "Python refuses to order None"),
    (
        "{% for x in none %}a{% endfor %}",
        "Python refuses to iterate over None",
    ),
    (
        "{% for a in range(3) %}{% with b = a %}{% if b == 1 %}{% break %}{% endif %}{{ b }}{% endwith %}{% endfor %}!",
        "the engine cannot leave a loop inside another block: an error says so",
    ),
    (
        "{% for a in range(3) %}{% filter upper %}q{% if a == 1 %}{% continue %}{% endif %}v{{ a }}{% endfilter %}{% endfor %}!",
        "as above",
    ),
    (
        "{% set ns = namespace(found=false) %}{% for i in [1, 2, 3] if not ns.found %}{% if i == 2 %}{% set ns.found = true %}{% endif %}{{ i }}{% endfor %}",
        "what a loop passes over is found before it begins",
    ),
    (
        "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}",
        "the default of a parameter does not see the others",
    ),
    (
        "{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}",
        "each assignment of a block sees those before it",
    ),
    (
        "{{ 1e16 ~ '' }} {{ [1e-5] | join }}",
        "joined floats have no exponent",
    ),
];

#[test]
fn the_language_of_templates_is_pythons() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chat/snippets.json");
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let mut unlisted = Vec::new();
    let mut differing = 0;
    for row in script("reference.py", &["snippets", file]) {
        let template = row["template"].as_str().expect("the script's format");
        let expected = Outcome::of_reference(&row["outcome"]);
        let result =
            load(template, scratch.path()).and_then(|loaded| loaded.render(&row["request"]));
        if Outcome::of(&result) == expected {
            continue;
        }
        differing += 1;
        if !SNIPPET_DIFFERENCES
            .iter()
            .any(|(listed, _)| *listed == template)
        {
            let outcome = &row["outcome"];
            unlisted.push(format!(
                "{template}\n   reference {outcome}\n   here      {result:?}"
            ));
        }
    }
    assert!(unlisted.is_empty(), "{}", unlisted.join("\n"));
    assert_eq!(
        differing,
        SNIPPET_DIFFERENCES.len(),
        "a listed difference is gone"
    );
}
