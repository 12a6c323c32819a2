//! Encoding text in which control tokens count only where they are vouched for.
//!
//! A second tokenizer knows each control token under a secret spelling only. The text that
//! the chat template wrote gets the secret spelling, the text of messages does not: there
//! `<|im_end|>` is plain text, encoded together with what surrounds it.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};

use tokenizers::{AddedToken, AddedVocabulary};

use super::{Tokenizer, format_error};
use crate::error::{Error, Kind, Result};

/// A stretch of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stretch<'a> {
    /// Text in which control tokens count.
    Trusted(&'a str),
    /// The text of a control token that is not meant as one.
    Plain(&'a str),
}

/// A tokenizer for texts that may quote control tokens.
pub(crate) struct GuardedTokenizer {
    inner: tokenizers::Tokenizer,
    /// Precedes a control token in its secret spelling.
    secret: String,
    /// A token without text, which ends a match that plain text would make.
    separator: u32,
    /// The ids of this tokenizer that mean another one in the model's.
    originals: HashMap<u32, u32>,
    controls: HashSet<u32>,
}

impl GuardedTokenizer {
    /// A copy of `tokenizer` that guards the control tokens with the given ids.
    pub(crate) fn new(tokenizer: &Tokenizer, controls: HashSet<u32>) -> Result<Self> {
        let secret = secret();
        let separator = format!("{secret}\u{E000}");
        let mut added: Vec<(&u32, &AddedToken)> = tokenizer.added.iter().collect();
        added.sort_by_key(|(id, _)| **id);
        let spelling = |id: u32, token: &AddedToken| {
            let mut token = token.clone();
            if controls.contains(&id) {
                token.content = format!("{secret}{}", token.content);
                token.normalized = false;
            }
            token
        };
        let mut inner = tokenizer.inner.clone();
        inner.with_added_vocabulary(AddedVocabulary::new());
        let tokens = added.iter().map(|(id, token)| spelling(**id, token));
        let separator_token = AddedToken::from(separator.as_str(), true);
        inner
            .add_tokens(tokens.chain([separator_token]))
            .map_err(format_error)?;
        let id_of = |text: &str| {
            inner
                .token_to_id(text)
                .ok_or_else(|| Error::new(Kind::ModelFormat, "added token has no id"))
        };
        let mut originals = HashMap::new();
        for (id, token) in added {
            originals.insert(id_of(&spelling(*id, token).content)?, *id);
        }
        Ok(Self {
            separator: id_of(&separator)?,
            inner,
            secret,
            originals,
            controls,
        })
    }

    /// The ids of the joined stretches, without those that surround a text.
    pub(crate) fn encode(
        &self,
        tokenizer: &Tokenizer,
        stretches: &[Stretch<'_>],
    ) -> Result<Vec<u32>> {
        if let Some(ids) = self.encode_with(tokenizer, stretches, false)? {
            return Ok(ids);
        }
        self.encode_with(tokenizer, stretches, true)?
            .ok_or_else(|| {
                Error::new(
                    Kind::Unsupported,
                    "tokenizer makes a control token of plain text in a message",
                )
            })
    }

    /// Some vocabularies make a control token even of plain text: then there are no ids,
    /// unless its characters are kept apart.
    fn encode_with(
        &self,
        tokenizer: &Tokenizer,
        stretches: &[Stretch<'_>],
        keeps_apart: bool,
    ) -> Result<Option<Vec<u32>>> {
        let mut text = String::new();
        for stretch in stretches {
            match *stretch {
                Stretch::Trusted(trusted) => self.spell(tokenizer, trusted, &mut text)?,
                Stretch::Plain(plain) if keeps_apart => {
                    for (at, character) in plain.chars().enumerate() {
                        if at > 0 {
                            text.push_str(&self.secret);
                            text.push('\u{E000}');
                        }
                        text.push(character);
                    }
                }
                Stretch::Plain(plain) => text.push_str(plain),
            }
        }
        let encoding = self.inner.encode_fast(text, false).map_err(format_error)?;
        let mut ids = Vec::with_capacity(encoding.get_ids().len());
        for &id in encoding.get_ids() {
            match self.originals.get(&id) {
                Some(&original) => ids.push(original),
                None if id == self.separator => {}
                None if self.controls.contains(&id) => return Ok(None),
                None => ids.push(id),
            }
        }
        Ok(Some(ids))
    }

    /// Appends a text with its control tokens, as the model's tokenizer finds them, in their
    /// secret spelling.
    fn spell(&self, tokenizer: &Tokenizer, text: &str, out: &mut String) -> Result<()> {
        let encoding = tokenizer.inner.encode(text, false).map_err(format_error)?;
        let mut written = 0;
        for (&id, &(start, end)) in encoding.get_ids().iter().zip(encoding.get_offsets()) {
            if !self.controls.contains(&id) || start < written {
                continue;
            }
            // A token may take the space around it with it.
            let token = &tokenizer.added[&id].content;
            if let Some(at) = text.get(start..end).and_then(|part| part.find(token)) {
                out.push_str(&text[written..start + at]);
                out.push_str(&self.secret);
                written = start + at;
            }
        }
        out.push_str(&text[written..]);
        Ok(())
    }
}

/// Private-use characters that nobody can guess, so no message can hold them.
fn secret() -> String {
    let random = RandomState::new().build_hasher().finish();
    (0..16)
        .filter_map(|digit| {
            let value = u32::try_from(random >> (4 * digit) & 0xF).ok()?;
            char::from_u32(0xE001 + value)
        })
        .collect()
}
