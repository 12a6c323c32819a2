//! Streaming forms of the operations that decoders apply to a whole text.
//!
//! Each stage takes text in pieces and gives out what no later piece can change, so that
//! the concatenated output equals the operation on the concatenated input.

use std::sync::Arc;

use tokenizers::{Decoder, DecoderWrapper};

/// One operation on a text that arrives in pieces.
#[derive(Clone)]
pub(super) enum TextStage {
    /// Every occurrence of a text becomes another one.
    Replace(ReplaceText),
    /// Leading and trailing repetitions of one character are removed.
    Strip(StripText),
    /// Every occurrence of one character is removed.
    Remove(char),
    /// The operation needs the whole text: it runs at the end.
    Whole(WholeText),
}

impl TextStage {
    /// A replacement of every `pattern` as `str::replace` does it.
    pub(super) fn replace(pattern: &str, replacement: &str) -> Self {
        Self::Replace(ReplaceText {
            pattern: pattern.into(),
            replacement: replacement.into(),
            held: String::new(),
        })
    }

    /// Removes up to `start` leading and up to `stop` trailing `content`.
    pub(super) fn strip(content: char, start: usize, stop: usize) -> Self {
        Self::Strip(StripText {
            content,
            leading: start,
            trailing: stop,
            held: 0,
        })
    }

    /// Runs `decoder` over the whole text.
    pub(super) fn whole(decoder: Arc<DecoderWrapper>) -> Self {
        Self::Whole(WholeText {
            decoder,
            held: String::new(),
        })
    }

    /// Takes the next piece and appends what is settled to `out`.
    pub(super) fn push(&mut self, text: &str, out: &mut String) {
        match self {
            Self::Replace(stage) => stage.push(text, out),
            Self::Strip(stage) => stage.push(text, out),
            Self::Remove(character) => out.extend(text.chars().filter(|c| c != character)),
            Self::Whole(stage) => stage.held.push_str(text),
        }
    }

    /// Appends what was held back; the stage starts anew.
    pub(super) fn finish(&mut self, out: &mut String) {
        match self {
            Self::Replace(stage) => out.push_str(&std::mem::take(&mut stage.held)),
            Self::Strip(stage) => stage.held = 0,
            Self::Remove(_) => {}
            Self::Whole(stage) => {
                let text = std::mem::take(&mut stage.held);
                match stage.decoder.decode_chain(vec![text.clone()]) {
                    Ok(pieces) => pieces.iter().for_each(|piece| out.push_str(piece)),
                    Err(_) => out.push_str(&text),
                }
            }
        }
    }
}

/// `str::replace` over pieces: holds back the longest end that could begin a match.
#[derive(Clone)]
pub(super) struct ReplaceText {
    pattern: Arc<str>,
    replacement: Arc<str>,
    held: String,
}

impl ReplaceText {
    fn push(&mut self, text: &str, out: &mut String) {
        if self.pattern.is_empty() {
            out.push_str(text);
            return;
        }
        self.held.push_str(text);
        let mut rest = self.held.as_str();
        while let Some(at) = rest.find(&*self.pattern) {
            out.push_str(&rest[..at]);
            out.push_str(&self.replacement);
            rest = &rest[at + self.pattern.len()..];
        }
        let settled = rest.len() - begun_length(rest, &self.pattern);
        out.push_str(&rest[..settled]);
        let consumed = self.held.len() - rest.len() + settled;
        self.held.drain(..consumed);
    }
}

/// The length of the longest end of `text` that is a proper beginning of `pattern`.
fn begun_length(text: &str, pattern: &str) -> usize {
    (1..pattern.len().min(text.len() + 1))
        .rev()
        .find(|&length| text.as_bytes().ends_with(&pattern.as_bytes()[..length]))
        .unwrap_or(0)
}

/// Removes a bounded number of one character at both ends of the text.
#[derive(Clone)]
pub(super) struct StripText {
    content: char,
    /// How many leading characters may still be removed.
    leading: usize,
    trailing: usize,
    /// How many of `content` are held back, at most `trailing`.
    held: usize,
}

impl StripText {
    fn push(&mut self, text: &str, out: &mut String) {
        for character in text.chars() {
            if character != self.content {
                self.leading = 0;
                out.extend(std::iter::repeat_n(self.content, self.held));
                self.held = 0;
                out.push(character);
            } else if self.leading > 0 {
                self.leading -= 1;
            } else if self.held < self.trailing {
                self.held += 1;
            } else {
                out.push(character);
            }
        }
    }
}

/// An operation that is only defined on the whole text.
#[derive(Clone)]
pub(super) struct WholeText {
    decoder: Arc<DecoderWrapper>,
    held: String,
}

/// UTF-8 decoding over pieces of bytes, with the replacement character for each maximal
/// invalid sequence, as `String::from_utf8_lossy` does it.
#[derive(Clone, Default)]
pub(super) struct LossyUtf8 {
    /// The beginning of a character whose end has not arrived.
    held: Vec<u8>,
}

impl LossyUtf8 {
    /// Takes the next bytes and appends the complete characters to `out`.
    pub(super) fn push(&mut self, bytes: &[u8], out: &mut String) {
        if self.held.is_empty() {
            let consumed = decode_complete(bytes, out);
            self.held.extend_from_slice(&bytes[consumed..]);
        } else {
            self.held.extend_from_slice(bytes);
            let consumed = decode_complete(&self.held, out);
            self.held.drain(..consumed);
        }
    }

    /// Appends the replacement of a character that never ended.
    pub(super) fn finish(&mut self, out: &mut String) {
        if !self.held.is_empty() {
            self.held.clear();
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

/// Appends the text of `bytes` up to an unfinished last character; the number of bytes used.
fn decode_complete(bytes: &[u8], out: &mut String) -> usize {
    let mut at = 0;
    loop {
        let error = match std::str::from_utf8(&bytes[at..]) {
            Ok(text) => {
                out.push_str(text);
                return bytes.len();
            }
            Err(error) => error,
        };
        let valid_end = at + error.valid_up_to();
        out.push_str(
            std::str::from_utf8(&bytes[at..valid_end]).expect("valid up to here, says the error"),
        );
        match error.error_len() {
            Some(length) => {
                out.push(char::REPLACEMENT_CHARACTER);
                at = valid_end + length;
            }
            None => return valid_end,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stream(mut stage: TextStage, pieces: &[String]) -> String {
        let mut out = String::new();
        for piece in pieces {
            stage.push(piece, &mut out);
        }
        stage.finish(&mut out);
        out
    }

    #[test]
    fn stripping_takes_no_more_than_it_may() {
        let pieces = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
        let strip = |text: &str| stream(TextStage::strip(' ', 1, 2), &pieces(text));
        assert_eq!(strip("  a b   "), " a b ");
        assert_eq!(strip(" "), "");
        assert_eq!(strip(""), "");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn replacing_in_pieces_equals_replacing_at_once(
            pieces in prop::collection::vec("[ab é]{0,4}", 0..8),
            pattern in "[abé ]{1,4}",
            replacement in "[ab]{0,2}",
        ) {
            let whole = pieces.concat().replace(&pattern, &replacement);
            prop_assert_eq!(stream(TextStage::replace(&pattern, &replacement), &pieces), whole);
        }

        #[test]
        fn decoding_bytes_in_pieces_equals_decoding_at_once(
            pieces in prop::collection::vec(
                prop::collection::vec(
                    prop_oneof![
                        any::<u8>(),
                        prop::sample::select(b"\xF0\x9F\x98\x8A\xE4\xBD\xA0\xC3\xA9\xED\xA0x".to_vec()),
                    ],
                    0..5,
                ),
                0..8,
            ),
        ) {
            let mut decoder = LossyUtf8::default();
            let mut out = String::new();
            for piece in &pieces {
                decoder.push(piece, &mut out);
            }
            decoder.finish(&mut out);
            let bytes = pieces.concat();
            prop_assert_eq!(out, String::from_utf8_lossy(&bytes));
        }
    }
}
