//! What `tokenizer_config.json` and its older companions say beside `tokenizer.json`.

use std::path::Path;

use serde_json::{Map, Value};
use tokenizers::AddedToken;

use crate::error::{Error, Kind, Result};
use crate::escape::EscapedPath;

/// The named special tokens, in the order in which templates and clients see them.
const NAMED: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// The content of `tokenizer_config.json` as far as tokenizing needs it.
#[derive(Default)]
pub(super) struct TokenizerConfig {
    /// `bos_token` and the like with their text.
    pub(super) named: Vec<(String, AddedToken)>,
    /// Special tokens without a role.
    pub(super) extra: Vec<AddedToken>,
    /// Tokens with the id that the config names, by id.
    pub(super) added: Vec<(u32, AddedToken)>,
    pub(super) add_bos: Option<bool>,
    pub(super) add_eos: Option<bool>,
    pub(super) clean_up_spaces: bool,
    /// Clean up even where it changes the text of a BPE model.
    pub(super) clean_up_spaces_of_bpe: bool,
}

impl TokenizerConfig {
    /// Reads the files of `directory`; a missing one says nothing.
    pub(super) fn load(directory: &Path) -> Result<Self> {
        let mut config = read_object(&directory.join("tokenizer_config.json"))?.unwrap_or_default();
        if !config.contains_key("added_tokens_decoder") {
            let legacy = read_object(&directory.join("special_tokens_map.json"))?;
            for (key, value) in legacy.unwrap_or_default() {
                config.entry(key).or_insert(value);
            }
        }
        Ok(Self::from_object(&config))
    }

    fn from_object(config: &Map<String, Value>) -> Self {
        let flag = |key: &str| config.get(key).and_then(Value::as_bool);
        let mut added: Vec<(u32, AddedToken)> = config
            .get("added_tokens_decoder")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .filter_map(|(id, token)| Some((id.parse().ok()?, added_token(token, false)?)))
            .collect();
        added.sort_by_key(|(id, _)| *id);
        let extra = ["additional_special_tokens", "extra_special_tokens"]
            .iter()
            .filter_map(|key| config.get(*key)?.as_array())
            .flatten()
            .filter_map(|token| added_token(token, true))
            .collect();
        Self {
            named: NAMED
                .iter()
                .filter_map(|name| {
                    let token = added_token(config.get(*name)?, true)?;
                    Some(((*name).to_owned(), token))
                })
                .collect(),
            extra,
            added,
            add_bos: flag("add_bos_token"),
            add_eos: flag("add_eos_token"),
            clean_up_spaces: flag("clean_up_tokenization_spaces").unwrap_or(false),
            clean_up_spaces_of_bpe: flag(
                "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
            )
            .unwrap_or(false),
        }
    }
}

/// A token written as a string or as an object with its flags.
fn added_token(value: &Value, is_special: bool) -> Option<AddedToken> {
    if let Some(content) = value.as_str() {
        return Some(AddedToken::from(content, is_special));
    }
    let object = value.as_object()?;
    let content = object.get("content")?.as_str()?;
    let flag =
        |key: &str, default: bool| object.get(key).and_then(Value::as_bool).unwrap_or(default);
    let is_special = is_special || flag("special", false);
    Some(
        AddedToken::from(content, is_special)
            .single_word(flag("single_word", false))
            .lstrip(flag("lstrip", false))
            .rstrip(flag("rstrip", false))
            .normalized(flag("normalized", !is_special)),
    )
}

/// The JSON object in a file, or nothing if there is no such file.
pub(crate) fn read_object(path: &Path) -> Result<Option<Map<String, Value>>> {
    let Some(text) = read_text(path)? else {
        return Ok(None);
    };
    match serde_json::from_str(&text) {
        Ok(Value::Object(object)) => Ok(Some(object)),
        Ok(_) => Err(Error::new(
            Kind::ModelFormat,
            format!("not a json object: {}", EscapedPath(path)),
        )),
        Err(error) => Err(Error::new(
            Kind::ModelFormat,
            format!("{error}: {}", EscapedPath(path)),
        )),
    }
}

/// The text of a file, or nothing if there is no such file.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(EscapedPath(path), error)),
    };
    String::from_utf8(bytes).map(Some).map_err(|_| {
        Error::new(
            Kind::ModelFormat,
            format!("not utf-8: {}", EscapedPath(path)),
        )
    })
}
