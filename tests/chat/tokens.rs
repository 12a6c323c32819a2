//! The ids of conversations with real tokenizers.

use std::path::Path;

use mlxb::{ChatTemplate, Tokenizer};
use serde_json::{Value, json};

use super::reference::{CLOCK, fetched, script};

/// A tokenizer of each kind, with a template of its family.
const MODELS: &[(&str, &str)] = &[
    ("qwen3", "Qwen-Qwen3-0.6B"),
    ("llama3", "meta-llama-Llama-3.1-8B-Instruct"),
    ("gemma3", "google-gemma-2-2b-it"),
    ("llama2", "microsoft-Phi-3.5-mini-instruct"),
];

fn ids(value: &Value) -> Option<Vec<u32>> {
    let ids = value.get("ids")?.as_array()?;
    ids.iter()
        .map(|id| u32::try_from(id.as_u64()?).ok())
        .collect()
}

fn load(tokenizer: &Path, template: &Path) -> (Tokenizer, ChatTemplate) {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(tokenizer.join(name), scratch.path().join(name)).expect("fetched");
    }
    std::fs::copy(template, scratch.path().join("chat_template.jinja")).expect("fetched");
    let tokenizer = Tokenizer::load(scratch.path()).expect("a real tokenizer");
    let template = ChatTemplate::load_with_clock(scratch.path(), &tokenizer, CLOCK);
    (tokenizer, template.expect("a real template"))
}

#[test]
fn real_tokenizers_give_the_ids_of_transformers() {
    let fetched = fetched();
    for (name, template) in MODELS {
        let folder = fetched.join("tokenizers").join(name);
        let template = fetched.join("templates").join(format!("{template}.jinja"));
        let (tokenizer, chat) = load(&folder, &template);
        let arguments = [&folder, &template].map(|path| path.to_str().expect("utf-8"));
        let mut compared = 0;
        for row in script("tokens.py", &arguments) {
            let expected = ids(&row);
            if let Some(text) = row.get("text").and_then(Value::as_str) {
                let ids = tokenizer
                    .encode(text, false)
                    .expect("a vocabulary of bytes");
                assert_eq!(Some(&ids), expected.as_ref(), "{name}: {text:?}");
                assert_eq!(tokenizer.decode(&ids, false), row["decoded"], "{name}");
                continue;
            }
            let tokens = chat.tokenize(&tokenizer, &row["request"]);
            let Some(expected) = expected else {
                assert!(tokens.is_err(), "{name}: {row}");
                continue;
            };
            let tokens = tokens.expect("the reference has ids");
            assert_eq!(tokens.ids, expected, "{name}: {}", row["conversation"]);
            compared += 1;
        }
        assert!(compared >= 5, "{name}: only {compared} conversations");
    }
}

/// The next turn of each conversation begins with the ids that were said to stay.
#[test]
fn what_is_stable_stays_with_every_real_template() {
    let fetched = fetched();
    let folder = fetched.join("tokenizers/qwen3");
    let conversations = script("conversations.py", &[]);
    let tokenizer = Tokenizer::load(&folder).expect("a real tokenizer");
    let mut templates = 0;
    let mut kept = 0;
    for entry in std::fs::read_dir(fetched.join("templates")).expect("fetched") {
        let path = entry.expect("readable").path();
        let scratch = tempfile::tempdir().expect("a temporary folder");
        std::fs::copy(&path, scratch.path().join("chat_template.jinja")).expect("writable");
        let chat = ChatTemplate::load_with_clock(scratch.path(), &tokenizer, CLOCK)
            .expect("a real template");
        templates += 1;
        for request in &conversations {
            let Ok(now) = chat.tokenize(&tokenizer, request) else {
                continue;
            };
            let mut next = request.clone();
            let messages = next["messages"].as_array_mut().expect("a list");
            if messages
                .last()
                .is_none_or(|last| last["role"] != "assistant")
            {
                messages.push(json!({"role": "assistant", "content": "Well, it depends."}));
            }
            messages.push(json!({"role": "user", "content": "On what?"}));
            let object = next.as_object_mut().expect("an object");
            object.remove("continue_final_message");
            let Ok(next) = chat.tokenize(&tokenizer, &next) else {
                continue;
            };
            let stable = now.stable_count;
            assert!(
                next.ids.len() >= stable && next.ids[..stable] == now.ids[..stable],
                "{}: {request}",
                path.display()
            );
            kept += usize::from(stable > 0);
        }
    }
    assert!(
        templates >= 60 && kept >= 10 * templates,
        "{kept} of {templates}"
    );
}
