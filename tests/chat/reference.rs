//! Runs the reference and reads what it wrote.

use std::path::{Path, PathBuf};
use std::process::Command;

use mlxb::{ChatTemplate, Clock, Kind, Result, Tokenizer};
use serde_json::{Value, json};

/// The moment that the reference script tells templates, too.
pub(crate) const CLOCK: Clock = Clock::Fixed {
    year: 2025,
    month: 3,
    day: 7,
    hour: 9,
    minute: 5,
    second: 2,
};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("the tool starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).expect("tools write utf-8")
}

/// The folder of real templates and tokenizers, fetched when first used.
pub(crate) fn fetched() -> PathBuf {
    let tool = root().join("tools/chat-templates");
    PathBuf::from(output(&mut Command::new(tool)).trim_end())
}

/// What a script of this folder writes.
pub(crate) fn script(name: &str, arguments: &[&str]) -> Vec<Value> {
    let text = output(
        Command::new(root().join("tools/python"))
            .arg(root().join("tests/chat").join(name))
            .args(arguments),
    );
    serde_json::from_str(&text).expect("scripts write a json list")
}

/// What rendering led to, in a form that can be compared.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Text(String),
    /// The template refused the conversation in its own words.
    Refusal(String),
    /// The template could not be run.
    Error,
}

impl Outcome {
    pub(crate) fn of_reference(value: &Value) -> Self {
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        match (text("text"), text("refusal")) {
            (Some(text), _) => Self::Text(text),
            (None, Some(words)) => Self::Refusal(words),
            (None, None) => Self::Error,
        }
    }

    pub(crate) fn of(result: &Result<String>) -> Self {
        match result {
            Ok(text) => Self::Text(text.clone()),
            Err(error) if error.kind() == Kind::Template && is_refusal(error.message()) => {
                Self::Refusal(error.message().to_owned())
            }
            Err(_) => Self::Error,
        }
    }
}

/// Failures of the engine begin with the name of what failed.
fn is_refusal(message: &str) -> bool {
    !message.starts_with("chat template ")
}

/// Loads one template as a model's.
pub(crate) fn load(template: &str, scratch: &Path) -> Result<ChatTemplate> {
    let vocabulary = json!({"[UNK]": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "<pad>": 4});
    let tokenizer = json!({"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": null, "truncation": null, "padding": null,
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocabulary}});
    let config = json!({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"});
    let write = |name: &str, text: &str| {
        std::fs::write(scratch.join(name), text).expect("the folder is writable");
    };
    write("tokenizer.json", &tokenizer.to_string());
    write("tokenizer_config.json", &config.to_string());
    write("chat_template.jinja", template);
    let tokenizer = Tokenizer::load(scratch)?;
    ChatTemplate::load_with_clock(scratch, &tokenizer, CLOCK)
}
