//! Reading text that may go on.

use serde_json::Value;

use super::literal;

/// Why nothing was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::chat::output) enum Stop {
    /// The text may become what was looked for.
    More,
    /// It never will, whatever follows.
    Not,
}

/// What reading led to. It depends on the beginning of a text only: once it is not
/// [`Stop::More`], no text that follows changes it.
pub(in crate::chat::output) type Read<T> = Result<T, Stop>;

/// A place in a text that is still arriving.
#[derive(Clone, Copy, Debug)]
pub(in crate::chat::output) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    /// Nothing follows the text.
    is_end: bool,
}

impl<'a> Cursor<'a> {
    pub(in crate::chat::output) fn new(text: &'a str, is_end: bool) -> Self {
        Self {
            text,
            at: 0,
            is_end,
        }
    }

    /// How many bytes were read.
    pub(in crate::chat::output) fn byte_count(&self) -> usize {
        self.at
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn skip(&mut self, byte_count: usize) {
        self.at += byte_count;
    }

    pub(in crate::chat::output) fn space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Whether nothing is left, and nothing follows.
    pub(super) fn is_finished(&self) -> bool {
        self.is_end && self.rest().is_empty()
    }

    /// What a text that ends too early means.
    pub(super) fn more(&self) -> Stop {
        if self.is_end { Stop::Not } else { Stop::More }
    }

    /// The next character.
    pub(super) fn peek(&self) -> Read<char> {
        self.rest().chars().next().ok_or_else(|| self.more())
    }

    /// Reads `marker` if it comes next.
    pub(super) fn eat(&mut self, marker: &str) -> Read<bool> {
        if self.rest().starts_with(marker) {
            self.at += marker.len();
            return Ok(true);
        }
        if !self.is_end && marker.starts_with(self.rest()) {
            return Err(Stop::More);
        }
        Ok(false)
    }

    /// Reads `marker`, which must come next.
    pub(in crate::chat::output) fn expect(&mut self, marker: &str) -> Read<()> {
        if self.eat(marker)? {
            Ok(())
        } else {
            Err(Stop::Not)
        }
    }

    /// Reads the one of `markers` that comes next, and says which.
    pub(in crate::chat::output) fn eat_one_of(&mut self, markers: &[&str]) -> Read<Option<usize>> {
        let mut may_follow = false;
        for (index, marker) in markers.iter().enumerate() {
            match self.eat(marker) {
                Ok(true) => return Ok(Some(index)),
                Ok(false) => {}
                Err(_) => may_follow = true,
            }
        }
        if may_follow {
            Err(Stop::More)
        } else {
            Ok(None)
        }
    }

    /// The text up to `marker`, which is read, too.
    pub(super) fn until(&mut self, marker: &str) -> Read<&'a str> {
        let at = self.rest().find(marker).ok_or_else(|| self.more())?;
        let before = &self.rest()[..at];
        self.at += at + marker.len();
        Ok(before)
    }

    /// Characters that `is_part` accepts; at least one, and one that it refuses behind them.
    pub(in crate::chat::output) fn word(
        &mut self,
        is_part: impl Fn(char) -> bool,
    ) -> Read<&'a str> {
        let rest = self.rest();
        let length = match rest.find(|character| !is_part(character)) {
            Some(length) => length,
            None if self.is_end => rest.len(),
            None => return Err(Stop::More),
        };
        if length == 0 {
            return Err(Stop::Not);
        }
        self.at += length;
        Ok(&rest[..length])
    }

    /// The name of a tool.
    pub(super) fn name(&mut self) -> Read<&'a str> {
        self.word(is_name)
    }

    /// A value in JSON's notation or Python's.
    pub(super) fn value(&mut self) -> Read<Value> {
        literal::value(self)
    }
}

/// Whether tools' names may hold this character.
pub(super) fn is_name(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '-' | '.')
}
