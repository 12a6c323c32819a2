//! The decoders of `tokenizer.json` as a chain of streaming stages.
//!
//! A decoder of the tokenizers crate maps the list of all tokens to the list of their
//! texts. Here each becomes a stage that takes one token at a time and holds back no more
//! than what later tokens can still change. Decoding at once and streaming use the same
//! chain, and property tests compare it with the crate.
//!
//! Stages come in two kinds. Token stages see token after token. `Fuse` and `ByteLevel`
//! join all tokens, and what follows them sees one text: these are text stages.

use std::sync::Arc;

use serde::Deserialize;
use tokenizers::{Decoder, DecoderWrapper};

use super::byte_level;
use super::text_stage::{LossyUtf8, TextStage};
use crate::error::{Error, Kind, Result};

/// The text of one token on its way through the stages.
struct Piece {
    text: String,
    /// Whether the token was added to the vocabulary: its text is meant literally.
    is_added: bool,
}

/// A chain of stages with its state.
#[derive(Clone)]
pub(super) struct Pipeline {
    tokens: Vec<TokenStage>,
    join: Join,
    texts: Vec<TextStage>,
}

impl Pipeline {
    /// The chain for a decoder; without one, tokens are joined by spaces.
    pub(super) fn new(decoder: Option<&DecoderWrapper>) -> Result<Self> {
        let mut pipeline = Self {
            tokens: Vec::new(),
            join: Join::Concatenate,
            texts: Vec::new(),
        };
        match decoder {
            Some(decoder) => pipeline.append(decoder, &mut false)?,
            None => pipeline.tokens.push(TokenStage::Spaced { is_first: true }),
        }
        Ok(pipeline)
    }

    /// Adds the removal of spaces before punctuation and English contractions that
    /// `clean_up_tokenization_spaces` asks for.
    pub(super) fn append_clean_up(&mut self) {
        self.texts.extend(
            CLEAN_UP
                .iter()
                .map(|(pattern, replacement)| TextStage::replace(pattern, replacement)),
        );
    }

    fn append(&mut self, decoder: &DecoderWrapper, is_joined: &mut bool) -> Result<()> {
        if let DecoderWrapper::Sequence(sequence) = decoder {
            for decoder in sequence.get_decoders() {
                self.append(decoder, is_joined)?;
            }
            return Ok(());
        }
        let spec = serde_json::to_value(decoder)
            .and_then(serde_json::from_value::<Spec>)
            .map_err(|error| {
                Error::new(Kind::ModelFormat, format!("tokenizer decoder: {error}"))
            })?;
        if *is_joined {
            self.append_text_stage(spec, decoder);
        } else {
            self.append_token_stage(spec, decoder, is_joined);
        }
        Ok(())
    }

    fn append_token_stage(&mut self, spec: Spec, decoder: &DecoderWrapper, is_joined: &mut bool) {
        self.tokens.push(match spec {
            Spec::Fuse => {
                *is_joined = true;
                return;
            }
            Spec::ByteLevel => {
                *is_joined = true;
                self.join = Join::Bytes(LossyUtf8::default());
                return;
            }
            Spec::BPEDecoder { suffix } => TokenStage::Suffix { suffix, held: None },
            Spec::WordPiece { prefix, cleanup } => TokenStage::WordPiece {
                prefix,
                clean_up: cleanup,
                is_first: true,
            },
            Spec::Metaspace {
                replacement,
                prepend_scheme,
            } => TokenStage::Metaspace {
                replacement,
                drops_first: prepend_scheme != "never",
                is_first: true,
            },
            Spec::Ctc {
                pad_token,
                word_delimiter_token,
                cleanup,
            } => TokenStage::Ctc {
                pad: pad_token,
                delimiter: cleanup.then_some(word_delimiter_token),
                previous: None,
            },
            Spec::Replace { pattern, content } => match pattern {
                Pattern::String(pattern) if !pattern.is_empty() => {
                    TokenStage::Replace { pattern, content }
                }
                _ => TokenStage::Each(Arc::new(decoder.clone())),
            },
            Spec::Strip {
                content,
                start,
                stop,
            } => TokenStage::Strip {
                content,
                start,
                stop,
            },
            Spec::ByteFallback => TokenStage::ByteFallback { held: Vec::new() },
        });
    }

    /// What the decoder does to a list of one text.
    fn append_text_stage(&mut self, spec: Spec, decoder: &DecoderWrapper) {
        let whole = || TextStage::whole(Arc::new(decoder.clone()));
        let replace = |pattern: &str, replacement: &str| {
            if pattern.is_empty() {
                whole()
            } else {
                TextStage::replace(pattern, replacement)
            }
        };
        match spec {
            Spec::Fuse => {}
            Spec::BPEDecoder { suffix } => self.texts.push(TextStage::replace(&suffix, "")),
            Spec::WordPiece { cleanup, .. } => {
                if cleanup {
                    self.append_wordpiece_clean_up();
                }
            }
            Spec::Metaspace {
                replacement,
                prepend_scheme,
            } => self.texts.push(if prepend_scheme == "never" {
                TextStage::replace(replacement.encode_utf8(&mut [0; 4]), " ")
            } else {
                TextStage::Remove(replacement)
            }),
            Spec::Replace {
                pattern: Pattern::String(pattern),
                content,
            } => self.texts.push(replace(&pattern, &content)),
            Spec::Strip {
                content,
                start,
                stop,
            } => self.texts.push(TextStage::strip(content, start, stop)),
            Spec::Ctc { .. }
            | Spec::Replace {
                pattern: Pattern::Regex(_),
                ..
            }
            | Spec::ByteFallback
            | Spec::ByteLevel => self.texts.push(whole()),
        }
    }

    fn append_wordpiece_clean_up(&mut self) {
        self.texts.extend(
            WORDPIECE_CLEAN_UP
                .iter()
                .map(|(pattern, replacement)| TextStage::replace(pattern, replacement)),
        );
    }

    /// Takes the next token; the text that is complete.
    pub(super) fn push(&mut self, text: String, is_added: bool) -> String {
        let mut out = String::new();
        let piece = Piece { text, is_added };
        run_tokens(&mut self.tokens, piece, &mut |piece| {
            self.join.push(piece, &mut out);
        });
        run_texts(&mut self.texts, out)
    }

    /// The text that was held back. Afterwards the chain must not be used again.
    pub(super) fn finish(&mut self) -> String {
        let mut out = String::new();
        for at in 0..self.tokens.len() {
            let (ending, later) = self.tokens[at..]
                .split_first_mut()
                .expect("the index is below the length");
            ending.finish(&mut |piece| {
                run_tokens(later, piece, &mut |piece| self.join.push(piece, &mut out));
            });
        }
        if let Join::Bytes(decoder) = &mut self.join {
            decoder.finish(&mut out);
        }
        for at in 0..self.texts.len() {
            let mut next = String::new();
            self.texts[at].push(&out, &mut next);
            self.texts[at].finish(&mut next);
            out = next;
        }
        out
    }
}

fn run_tokens(stages: &mut [TokenStage], piece: Piece, sink: &mut dyn FnMut(Piece)) {
    match stages.split_first_mut() {
        Some((stage, later)) => stage.push(piece, &mut |piece| run_tokens(later, piece, sink)),
        None => sink(piece),
    }
}

fn run_texts(stages: &mut [TextStage], mut text: String) -> String {
    for stage in stages {
        if text.is_empty() {
            break;
        }
        let mut next = String::with_capacity(text.len());
        stage.push(&text, &mut next);
        text = next;
    }
    text
}

/// How the tokens become one text.
#[derive(Clone)]
enum Join {
    Concatenate,
    /// Characters stand for bytes.
    Bytes(LossyUtf8),
}

impl Join {
    fn push(&mut self, piece: Piece, out: &mut String) {
        match self {
            Self::Concatenate => out.push_str(&piece.text),
            Self::Bytes(decoder) => {
                let bytes = if piece.is_added {
                    None
                } else {
                    byte_level::bytes_of(&piece.text)
                };
                decoder.push(bytes.as_deref().unwrap_or(piece.text.as_bytes()), out);
            }
        }
    }
}

/// One operation on a sequence of tokens.
#[derive(Clone)]
enum TokenStage {
    /// A space between tokens.
    Spaced {
        is_first: bool,
    },
    /// `</w>` at the end of a word becomes a space, or nothing at the end of the text.
    Suffix {
        suffix: String,
        held: Option<String>,
    },
    /// A space before each token that does not continue a word.
    WordPiece {
        prefix: String,
        clean_up: bool,
        is_first: bool,
    },
    /// A visible character stands for the space; the first token's are not text.
    Metaspace {
        replacement: char,
        drops_first: bool,
        is_first: bool,
    },
    /// Repeated tokens count once, padding is removed.
    Ctc {
        pad: String,
        delimiter: Option<String>,
        previous: Option<String>,
    },
    Replace {
        pattern: String,
        content: String,
    },
    Strip {
        content: char,
        start: usize,
        stop: usize,
    },
    /// `<0xE5>` stands for a byte. A run of such tokens is text if all of it is valid
    /// UTF-8; otherwise each is one replacement character. So a run is held to its end.
    ByteFallback {
        held: Vec<u8>,
    },
    /// A decoder that treats each token alone.
    Each(Arc<DecoderWrapper>),
}

impl TokenStage {
    fn push(&mut self, mut piece: Piece, next: &mut dyn FnMut(Piece)) {
        match self {
            Self::Spaced { is_first } => {
                if !std::mem::take(is_first) {
                    piece.text.insert(0, ' ');
                }
                next(piece);
            }
            Self::Suffix { suffix, held } => {
                if let Some(text) = held.take() {
                    next(Piece {
                        text: text.replace(&*suffix, " "),
                        is_added: false,
                    });
                }
                if piece.text.contains(&*suffix) {
                    *held = Some(piece.text);
                } else {
                    next(piece);
                }
            }
            Self::WordPiece {
                prefix,
                clean_up,
                is_first,
            } => {
                if !std::mem::take(is_first) {
                    match piece.text.strip_prefix(&**prefix) {
                        Some(rest) => piece.text = rest.to_owned(),
                        None => piece.text.insert(0, ' '),
                    }
                }
                if *clean_up {
                    piece.text = wordpiece_clean_up(piece.text);
                }
                next(piece);
            }
            Self::Metaspace {
                replacement,
                drops_first,
                is_first,
            } => {
                let space = if std::mem::take(is_first) && *drops_first {
                    ""
                } else {
                    " "
                };
                if piece.text.contains(*replacement) {
                    piece.text = piece.text.replace(*replacement, space);
                }
                next(piece);
            }
            Self::Ctc {
                pad,
                delimiter,
                previous,
            } => {
                if previous.as_deref() == Some(&*piece.text) {
                    return;
                }
                let mut text = piece.text.replace(&*pad, "");
                *previous = Some(piece.text);
                if let Some(delimiter) = delimiter {
                    text = wordpiece_clean_up(text).replace(&*delimiter, " ");
                }
                if !text.is_empty() {
                    next(Piece {
                        text,
                        is_added: piece.is_added,
                    });
                }
            }
            Self::Replace { pattern, content } => {
                if piece.text.contains(&*pattern) {
                    piece.text = piece.text.replace(&*pattern, content);
                }
                next(piece);
            }
            Self::Strip {
                content,
                start,
                stop,
            } => {
                piece.text = strip(&piece.text, *content, *start, *stop).to_owned();
                next(piece);
            }
            Self::ByteFallback { held } => match fallback_byte(&piece.text) {
                Some(byte) => held.push(byte),
                None => {
                    release_bytes(held, next);
                    next(piece);
                }
            },
            Self::Each(decoder) => {
                let text = piece.text.clone();
                match decoder.decode_chain(vec![piece.text]) {
                    Ok(texts) => texts.into_iter().for_each(|text| {
                        next(Piece {
                            text,
                            is_added: piece.is_added,
                        });
                    }),
                    Err(_) => next(Piece {
                        text,
                        is_added: piece.is_added,
                    }),
                }
            }
        }
    }

    fn finish(&mut self, next: &mut dyn FnMut(Piece)) {
        match self {
            Self::Suffix { suffix, held } => {
                if let Some(text) = held.take() {
                    next(Piece {
                        text: text.replace(&*suffix, ""),
                        is_added: false,
                    });
                }
            }
            Self::ByteFallback { held } => release_bytes(held, next),
            Self::Spaced { .. }
            | Self::WordPiece { .. }
            | Self::Metaspace { .. }
            | Self::Ctc { .. }
            | Self::Replace { .. }
            | Self::Strip { .. }
            | Self::Each(_) => {}
        }
    }
}

/// The byte of a token such as `<0xE5>`.
pub(super) fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

fn release_bytes(held: &mut Vec<u8>, next: &mut dyn FnMut(Piece)) {
    if held.is_empty() {
        return;
    }
    let mut release = |text: String| {
        next(Piece {
            text,
            is_added: false,
        });
    };
    match String::from_utf8(std::mem::take(held)) {
        Ok(text) => release(text),
        Err(error) => (0..error.as_bytes().len())
            .for_each(|_| release(char::REPLACEMENT_CHARACTER.to_string())),
    }
}

fn strip(text: &str, content: char, start: usize, stop: usize) -> &str {
    let mut rest = text;
    for _ in 0..start {
        rest = rest.strip_prefix(content).unwrap_or(rest);
    }
    for _ in 0..stop {
        rest = rest.strip_suffix(content).unwrap_or(rest);
    }
    rest
}

/// The replacements of `clean_up_tokenization_spaces`, in order.
const CLEAN_UP: &[(&str, &str)] = &[
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
];

/// The replacements of the WordPiece decoder, which has one more.
const WORDPIECE_CLEAN_UP: &[(&str, &str)] = &[
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" do not", " don't"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
];

fn wordpiece_clean_up(text: String) -> String {
    WORDPIECE_CLEAN_UP
        .iter()
        .fold(text, |text, (pattern, replacement)| {
            if text.contains(pattern) {
                text.replace(pattern, replacement)
            } else {
                text
            }
        })
}

/// A decoder's parameters, as the crate writes them.
#[derive(Deserialize)]
#[serde(tag = "type")]
enum Spec {
    BPEDecoder {
        suffix: String,
    },
    ByteLevel,
    WordPiece {
        prefix: String,
        cleanup: bool,
    },
    Metaspace {
        replacement: char,
        prepend_scheme: String,
    },
    #[serde(rename = "CTC")]
    Ctc {
        pad_token: String,
        word_delimiter_token: String,
        cleanup: bool,
    },
    Replace {
        pattern: Pattern,
        content: String,
    },
    Fuse,
    Strip {
        content: char,
        start: usize,
        stop: usize,
    },
    ByteFallback,
}

#[derive(Deserialize)]
enum Pattern {
    String(String),
    Regex(serde::de::IgnoredAny),
}
