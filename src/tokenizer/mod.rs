//! Text to token ids and back, as the model's `tokenizer.json` defines it.
//!
//! [`Tokenizer`] wraps the tokenizers crate and adds what a model folder says elsewhere:
//! named special tokens, the tokens and flags of `tokenizer_config.json`, and whether an
//! encoded text begins with BOS. Its results equal those of transformers' `AutoTokenizer`
//! with one exception: an added token decodes to its own text under a byte-level decoder
//! too, where the reference takes characters such as `č` for bytes.
//!
//! ```no_run
//! # fn main() -> mlxb::Result<()> {
//! let tokenizer = mlxb::Tokenizer::load("models/smol".as_ref())?;
//! let ids = tokenizer.encode("Hello", true)?;
//! assert_eq!(tokenizer.decode(&ids, true), "Hello");
//! # Ok(())
//! # }
//! ```

mod byte_level;
mod config;
mod guarded;
mod pipeline;
mod stream;
mod text_stage;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;
use std::path::Path;

use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{AddedToken, Model, ModelWrapper};

pub(crate) use self::config::{read_object, read_text};
pub(crate) use self::guarded::{GuardedTokenizer, Stretch};
pub use self::stream::Detokenizer;

use self::config::TokenizerConfig;
use self::pipeline::Pipeline;
use crate::error::{Error, Kind, Result};
use crate::escape::EscapedPath;

/// A model's tokenizer. Immutable after loading; all threads may use it at once.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    named: Vec<(String, String)>,
    added: HashMap<u32, AddedToken>,
    pipeline: Pipeline,
    vocabulary_size: usize,
}

impl Tokenizer {
    /// Reads `tokenizer.json`, `tokenizer_config.json` and, where the latter is of the old
    /// form, `special_tokens_map.json` of a model folder.
    ///
    /// # Errors
    /// `ModelFormat` without a `tokenizer.json`, or if a file is malformed.
    pub fn load(directory: &Path) -> Result<Self> {
        let path = directory.join("tokenizer.json");
        let Some(text) = read_text(&path)? else {
            return Err(Error::new(
                Kind::ModelFormat,
                format!(
                    "{}: incomplete model, missing: tokenizer.json",
                    EscapedPath(directory)
                ),
            ));
        };
        let config = TokenizerConfig::load(directory)?;
        Self::build(&text, &config)
            .map_err(|error| Error::new(error.kind(), format!("{error}: {}", EscapedPath(&path))))
    }

    fn build(text: &str, config: &TokenizerConfig) -> Result<Self> {
        // The crate panics on malformed JSON inside a decoder, so the syntax is checked first.
        serde_json::from_str::<serde::de::IgnoredAny>(text)
            .map_err(|error| Error::new(Kind::ModelFormat, error.to_string()))?;
        let mut inner: tokenizers::Tokenizer = text.parse().map_err(format_error)?;
        inner.with_padding(None);
        inner.with_truncation(None).map_err(format_error)?;
        add_config_tokens(&mut inner, config)?;
        let named: Vec<(String, String)> = config
            .named
            .iter()
            .map(|(name, token)| (name.clone(), token.content.clone()))
            .collect();
        apply_bos_and_eos(&mut inner, config, &named)?;

        let mut pipeline = Pipeline::new(inner.get_decoder())?;
        let is_bpe = matches!(inner.get_model(), ModelWrapper::BPE(_));
        if config.clean_up_spaces && (!is_bpe || config.clean_up_spaces_of_bpe) {
            pipeline.append_clean_up();
        }
        let added = inner.get_added_tokens_decoder().into_iter().collect();
        Ok(Self {
            vocabulary_size: inner.get_vocab_size(true),
            inner,
            named,
            added,
            pipeline,
        })
    }

    /// The ids of a text. With `add_special`, those that the tokenizer puts around a text
    /// (BOS, for most models that have one) are added, except that a text that already
    /// begins with the BOS token's text gets no second one.
    ///
    /// # Errors
    /// `ModelFormat` if the vocabulary has no token for a part of the text.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        let encoding = self
            .inner
            .encode_fast(text, add_special)
            .map_err(|error| Error::new(Kind::ModelFormat, format!("tokenizing: {error}")))?;
        let ids = encoding.get_ids();
        let repeats_bos = add_special
            && self
                .bos_id()
                .is_some_and(|bos| ids.starts_with(&[bos, bos]))
            && self.bos_token().is_some_and(|bos| text.starts_with(bos));
        Ok(ids[usize::from(repeats_bos)..].to_vec())
    }

    /// The last place before the byte `limit` at which an added token divides `text`, whose
    /// ids are given: how many ids precede it, and where it begins. What stands before such
    /// a place has the same ids whatever follows. The start of the text is one, too.
    pub(crate) fn division_before(
        &self,
        limit: usize,
        text: &str,
        ids: &[u32],
    ) -> Result<(usize, usize)> {
        let mut added: Vec<u32> = ids.to_vec();
        added.sort_unstable();
        added.dedup();
        let place = added
            .iter()
            .filter_map(|id| {
                let content = self.added.get(id)?.content.as_bytes();
                let head = &text.as_bytes()[..limit.min(text.len())];
                head.windows(content.len())
                    .rposition(|window| window == content)
            })
            .max()
            .filter(|at| text.is_char_boundary(*at));
        if let Some(at) = place {
            let rest = self.encode(&text[at..], false)?;
            let begins_with_added = rest.first().is_some_and(|id| self.added.contains_key(id));
            if begins_with_added && ids.ends_with(&rest) {
                return Ok((ids.len() - rest.len(), at));
            }
        }
        Ok((0, 0))
    }

    /// The tokens that were added to the vocabulary, with their ids.
    pub(crate) fn added_tokens(&self) -> impl Iterator<Item = (u32, &AddedToken)> {
        self.added.iter().map(|(id, token)| (*id, token))
    }

    /// The text of all ids. Ids outside the vocabulary have none. Bytes that are not UTF-8
    /// become replacement characters.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut pipeline = self.pipeline.clone();
        let mut text = String::new();
        for &id in ids {
            if let Some((token, is_added)) = self.decodable(id, skip_special) {
                text.push_str(&pipeline.push(token, is_added));
            }
        }
        text.push_str(&pipeline.finish());
        text
    }

    /// The text of a token as decoders see it, unless the id is unknown or skipped, and
    /// whether the token was added to the vocabulary.
    fn decodable(&self, id: u32, skip_special: bool) -> Option<(String, bool)> {
        let (token, is_added) = match self.added.get(&id) {
            Some(token) => (token.content.clone(), true),
            None => (self.inner.get_model().id_to_token(id)?, false),
        };
        let is_skipped = skip_special && self.inner.get_added_vocabulary().is_special_token(&token);
        (!is_skipped).then_some((token, is_added))
    }

    /// How many tokens there are, added ones included. The model's embedding may have
    /// more rows.
    pub fn vocab_size(&self) -> usize {
        self.vocabulary_size
    }

    /// The id of a token's exact text.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The token's text in the vocabulary, where for example `Ġ` stands for a space.
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        match self.added.get(&id) {
            Some(token) => Some(token.content.clone()),
            None => self.inner.get_model().id_to_token(id),
        }
    }

    /// The bytes that a token stands for in the middle of a text: where it holds a part of a
    /// character, that part. Empty for an id outside the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        let once = self.decode(&[id], false);
        if once.contains(char::REPLACEMENT_CHARACTER)
            && !self.added.contains_key(&id)
            && let Some(token) = self.inner.get_model().id_to_token(id)
        {
            let single = pipeline::fallback_byte(&token).map(|byte| vec![byte]);
            return single
                .or_else(|| byte_level::bytes_of(&token))
                .unwrap_or_else(|| once.into_bytes());
        }
        // Some decoders leave out the space before the first token.
        let twice = self.decode(&[id, id], false);
        let again = twice.strip_prefix(&once).map(str::to_owned);
        again.unwrap_or(once).into_bytes()
    }

    /// Whether `decode` leaves this id out when it skips special tokens.
    pub fn is_special(&self, id: u32) -> bool {
        self.added.get(&id).is_some_and(|token| token.special)
    }

    /// The ids of all special tokens, ascending.
    pub fn special_ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self
            .added
            .iter()
            .filter_map(|(id, token)| token.special.then_some(*id))
            .collect();
        ids.sort_unstable();
        ids
    }

    /// The named special tokens with their text, such as `("eos_token", "</s>")`.
    pub fn named_tokens(&self) -> &[(String, String)] {
        &self.named
    }

    /// The text of the token that begins a sequence.
    pub fn bos_token(&self) -> Option<&str> {
        self.named_token("bos_token")
    }

    /// The text of the token that ends a sequence.
    pub fn eos_token(&self) -> Option<&str> {
        self.named_token("eos_token")
    }

    /// The id of the token that begins a sequence.
    pub fn bos_id(&self) -> Option<u32> {
        self.token_to_id(self.bos_token()?)
    }

    /// The id of the token that ends a sequence. Other files of a model may name more.
    pub fn eos_id(&self) -> Option<u32> {
        self.token_to_id(self.eos_token()?)
    }

    fn named_token(&self, name: &str) -> Option<&str> {
        self.named
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, token)| token.as_str())
    }
}

/// Adds the tokens and flags that only `tokenizer_config.json` has.
fn add_config_tokens(inner: &mut tokenizers::Tokenizer, config: &TokenizerConfig) -> Result<()> {
    let known = inner.get_added_tokens_decoder();
    let mut contents: Vec<String> = known.values().map(|token| token.content.clone()).collect();
    let mut missing: Vec<AddedToken> = Vec::new();
    for (id, token) in &config.added {
        if known.get(id) != Some(token) {
            contents.push(token.content.clone());
            missing.push(token.clone());
        }
    }
    let named = config.named.iter().map(|(_, token)| token);
    for token in named.chain(&config.extra) {
        if !contents.contains(&token.content) {
            contents.push(token.content.clone());
            missing.push(token.clone());
        }
    }
    if !missing.is_empty() {
        inner.add_tokens(missing).map_err(format_error)?;
    }
    Ok(())
}

/// Lets the config's `add_bos_token` and `add_eos_token` decide what surrounds a text.
fn apply_bos_and_eos(
    inner: &mut tokenizers::Tokenizer,
    config: &TokenizerConfig,
    named: &[(String, String)],
) -> Result<()> {
    if config.add_bos.is_none() && config.add_eos.is_none() {
        return Ok(());
    }
    let token = |is_wanted: Option<bool>, name: &str| {
        let (_, token) = named
            .iter()
            .find(|(key, _)| is_wanted == Some(true) && key == name)?;
        Some((token.clone(), inner.token_to_id(token)?))
    };
    let bos = token(config.add_bos, "bos_token");
    let eos = token(config.add_eos, "eos_token");
    let mut single: Vec<String> = Vec::new();
    single.extend(bos.iter().map(|(token, _)| token.clone()));
    single.push("$A".to_owned());
    single.extend(eos.iter().map(|(token, _)| token.clone()));
    let processing = TemplateProcessing::builder()
        .try_single(single)
        .map_err(|error| Error::new(Kind::ModelFormat, error))?
        .special_tokens(bos.into_iter().chain(eos).collect::<Vec<_>>())
        .build()
        .map_err(|error| Error::new(Kind::ModelFormat, error.to_string()))?;
    inner.with_post_processor(Some(processing));
    Ok(())
}

fn format_error(error: Box<dyn std::error::Error + Send + Sync>) -> Error {
    Error::new(Kind::ModelFormat, error.to_string())
}
