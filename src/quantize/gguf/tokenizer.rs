//! The tokenizer that a file's metadata stands for, in Hugging Face's form.

use serde_json::{Map, Value, json};

use super::config::{SPECIAL, special_id};
use crate::{
    error::{Error, Kind, Result},
    escape::Escaped,
    gguf::Metadata,
};

/// Types of tokens that stand for themselves: those that steer, and the user's own.
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;

/// How Llama 3 cuts text into words.
const LLAMA3_WORDS: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// What is said when there is no tokenizer: what would help.
fn missing(what: &str, value: &str) -> Error {
    Error::new(
        Kind::ModelFormat,
        format!(
            "no tokenizer.json beside the file, and {what}: {}",
            Escaped(value)
        ),
    )
}

fn required<'a, T: ?Sized>(value: Option<&'a T>, key: &str) -> Result<&'a T> {
    value.ok_or_else(|| missing("the metadata has none either, missing", key))
}

/// The files of the tokenizer, by name.
///
/// # Errors
/// [`Kind::ModelFormat`] naming what is missing, or a kind of tokenizer that cannot be written in
/// this form: then its files must lie beside the GGUF file.
pub(super) fn documents(metadata: &Metadata) -> Result<Map<String, Value>> {
    let text = |key: &str| required(metadata.text(key)?, key);
    let model = text("tokenizer.ggml.model")?;
    if model != "gpt2" {
        return Err(missing(
            "one of this kind cannot be made from metadata",
            model,
        ));
    }
    let byte_level = |use_regex: bool| {
        json!({
            "type": "ByteLevel",
            "add_prefix_space": false,
            "trim_offsets": true,
            "use_regex": use_regex,
        })
    };
    let sequence =
        |first: Value, second| json!({"type": "Sequence", "pretokenizers": [first, second]});
    let words = text("tokenizer.ggml.pre")?;
    let pre_tokenizer = match words {
        "gpt-2" => byte_level(true),
        "smollm" => sequence(
            json!({"type": "Digits", "individual_digits": true}),
            byte_level(true),
        ),
        "llama-bpe" => sequence(
            json!({
                "type": "Split",
                "pattern": {"Regex": LLAMA3_WORDS},
                "behavior": "Isolated",
                "invert": false,
            }),
            byte_level(false),
        ),
        other => {
            return Err(missing(
                "one with such words cannot be made from metadata",
                other,
            ));
        }
    };
    let tokens = required(
        metadata.texts("tokenizer.ggml.tokens")?,
        "tokenizer.ggml.tokens",
    )?;
    let merges = required(
        metadata.texts("tokenizer.ggml.merges")?,
        "tokenizer.ggml.merges",
    )?;
    let kinds = metadata
        .integers("tokenizer.ggml.token_type")?
        .unwrap_or(&[]);
    let mut vocabulary = Map::new();
    for (id, token) in tokens.iter().enumerate() {
        if vocabulary.insert(token.clone(), id.into()).is_some() {
            return Err(missing("a token stands twice in the metadata", token));
        }
    }
    let added: Vec<_> = tokens
        .iter()
        .zip(kinds)
        .enumerate()
        .filter(|(_, (_, kind))| matches!(**kind, CONTROL | USER_DEFINED))
        .map(|(id, (token, kind))| (id, added_token(token, *kind == CONTROL)))
        .collect();
    let special = special_tokens(metadata, tokens)?;
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added
            .iter()
            .map(|(id, token)| {
                let mut with_id = Map::new();
                with_id.insert("id".to_owned(), (*id).into());
                with_id.extend(token.clone());
                Value::Object(with_id)
            })
            .collect::<Vec<_>>(),
        "normalizer": null,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor(metadata)?,
        "decoder": byte_level(true),
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": words == "llama-bpe",
            "vocab": vocabulary,
            "merges": merges,
        },
    });
    let mut config = special.clone();
    let mut set = |key: &str, value: Value| drop(config.insert(key.to_owned(), value));
    set("add_prefix_space", false.into());
    let decoder = added
        .into_iter()
        .map(|(id, token)| (id.to_string(), Value::Object(token)));
    set("added_tokens_decoder", Value::Object(decoder.collect()));
    set("clean_up_tokenization_spaces", false.into());
    if let Some(length) = metadata.count("llama.context_length")? {
        set("model_max_length", length.into());
    }
    set("tokenizer_class", "PreTrainedTokenizerFast".into());
    if let Some(template) = metadata.text("tokenizer.chat_template")? {
        set("chat_template", template.into());
    }
    let mut generation = Map::new();
    for (name, key) in &SPECIAL[..3] {
        if let Some(id) = special_id(metadata, key)? {
            generation.insert(format!("{name}_token_id"), id.into());
        }
    }
    Ok(Map::from_iter([
        ("tokenizer.json".to_owned(), tokenizer),
        ("tokenizer_config.json".to_owned(), Value::Object(config)),
        ("special_tokens_map.json".to_owned(), Value::Object(special)),
        (
            "generation_config.json".to_owned(),
            Value::Object(generation),
        ),
    ]))
}

fn added_token(text: &str, is_special: bool) -> Map<String, Value> {
    let token = json!({
        "content": text,
        "single_word": false,
        "lstrip": false,
        "rstrip": false,
        "normalized": false,
        "special": is_special,
    });
    token.as_object().cloned().unwrap_or_default()
}

/// `bos_token` and its like, with their texts.
fn special_tokens(metadata: &Metadata, tokens: &[String]) -> Result<Map<String, Value>> {
    let mut special = Map::new();
    for (name, key) in SPECIAL {
        let Some(id) = special_id(metadata, key)? else {
            continue;
        };
        let token = usize::try_from(id).ok().and_then(|id| tokens.get(id));
        let token =
            token.ok_or_else(|| missing("a special token has no text, id", &id.to_string()))?;
        special.insert(format!("{name}_token"), token.as_str().into());
    }
    Ok(special)
}

/// What puts the begin token in front of a text, where the model wants that.
fn post_processor(metadata: &Metadata) -> Result<Value> {
    if metadata.boolean("tokenizer.ggml.add_bos_token")? != Some(true) {
        return Ok(Value::Null);
    }
    let key = "tokenizer.ggml.bos_token_id";
    let id =
        special_id(metadata, "bos")?.ok_or_else(|| missing("the begin token is not named", key))?;
    let tokens = metadata.texts("tokenizer.ggml.tokens")?.unwrap_or(&[]);
    let token = usize::try_from(id).ok().and_then(|id| tokens.get(id));
    let token = token.ok_or_else(|| missing("a special token has no text, id", &id.to_string()))?;
    let special = json!({"SpecialToken": {"id": token, "type_id": 0}});
    let sequence = |id: &str, type_id: u32| json!({"Sequence": {"id": id, "type_id": type_id}});
    let mut tokens = Map::new();
    tokens.insert(
        token.clone(),
        json!({"id": token, "ids": [id], "tokens": [token]}),
    );
    Ok(json!({
        "type": "TemplateProcessing",
        "single": [special, sequence("A", 0)],
        "pair": [special, sequence("A", 0), special, sequence("B", 1)],
        "special_tokens": tokens,
    }))
}
