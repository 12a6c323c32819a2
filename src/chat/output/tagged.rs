//! Answers in which markers enclose reasoning and tool calls.

use super::ending::Ending;
use super::held::Held;
use super::reasoning::Tags;
use super::tools::{Cursor, Schemas, Stop, Syntax};
use super::{OutputFormat, Piece, Unfinished, say};

/// Takes such an answer apart.
///
/// White space beside a marker belongs to the marker. Whatever opens a call that does not
/// parse is text, and what follows it is read again.
#[derive(Clone, Debug)]
pub(super) struct Tagged {
    reasoning: Option<&'static Tags>,
    /// None if nothing is a call.
    syntax: Option<&'static dyn Syntax>,
    ignored: &'static [&'static str],
    tools: Schemas,
    held: Held,
    mode: Mode,
    /// A marker came last, so white space is dropped.
    drops_space: bool,
    /// Nothing was said yet, or calls came last.
    may_be_bare_call: bool,
    /// A call interrupted the reasoning, whose end may still come.
    may_close: bool,
    /// When the open call is read.
    ending: Ending,
}

#[derive(Clone, Copy, Debug)]
enum Mode {
    Text,
    Reasoning,
    /// A call is open.
    Call {
        /// The white space before its marker.
        space_bytes: usize,
        opening: &'static str,
        in_reasoning: bool,
    },
    /// A call has ended; its block may go on.
    Block {
        opening: &'static str,
        in_reasoning: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Marker {
    OpensReasoning,
    ClosesReasoning,
    OpensCall,
    Ignored,
}

/// How the text goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    NotYet,
    Complete,
    Cut,
}

impl Tagged {
    pub(super) fn new(format: &OutputFormat, tools: Schemas, prompt_end: &str) -> Self {
        let syntax = format.tools.filter(|_| !tools.is_empty());
        let seed = syntax.and_then(|syntax| {
            let named = tools.names().map(|name| syntax.seed(Some(name)));
            let mut seeds = named.chain([syntax.seed(None)]);
            seeds.find(|seed| prompt_end.ends_with(seed.as_str()))
        });
        let reasoning = format.reasoning;
        let opens_reasoning = seed.is_none()
            && reasoning.is_some_and(|tags| tags.are_open_in(prompt_end, &format.special_tokens));
        Self {
            reasoning,
            syntax,
            ignored: format.ignored,
            tools,
            held: seed.map(|seed| Held::prompt(&seed)).unwrap_or_default(),
            mode: if opens_reasoning {
                Mode::Reasoning
            } else {
                Mode::Text
            },
            drops_space: opens_reasoning,
            may_be_bare_call: true,
            may_close: false,
            ending: Ending::default(),
        }
    }

    pub(super) fn push(&mut self, text: &str) -> Vec<Piece> {
        let mut out = Vec::new();
        self.held.push(text);
        self.run(End::NotYet, &mut out);
        out
    }

    pub(super) fn finish(mut self, is_cut: bool) -> (Vec<Piece>, Unfinished) {
        let mut out = Vec::new();
        let end = if is_cut { End::Cut } else { End::Complete };
        let call = self.run(end, &mut out);
        let reasoning = matches!(self.mode, Mode::Reasoning);
        let rest = self.held.text().len();
        self.give(rest, &mut out);
        (out, Unfinished { call, reasoning })
    }

    pub(super) fn reasoning_is_open(&self) -> bool {
        match self.mode {
            Mode::Reasoning => true,
            Mode::Text | Mode::Block { .. } => false,
            Mode::Call { in_reasoning, .. } => in_reasoning,
        }
    }

    /// Reads as far as the text allows; whether a call was cut.
    fn run(&mut self, end: End, out: &mut Vec<Piece>) -> bool {
        let mut call_was_cut = false;
        loop {
            let goes_on = match self.mode {
                Mode::Text | Mode::Reasoning => self.prose(out),
                Mode::Call { .. } => self.call(end, &mut call_was_cut, out),
                Mode::Block { .. } => self.block(end, &mut call_was_cut, out),
            };
            if !goes_on {
                return call_was_cut;
            }
        }
    }

    /// What the current mode looks for.
    fn markers(&self) -> (Vec<Marker>, Vec<&'static str>) {
        let mut markers = Vec::new();
        let in_reasoning = matches!(self.mode, Mode::Reasoning);
        if let Some(tags) = self.reasoning {
            if !in_reasoning {
                markers.push((Marker::OpensReasoning, tags.opening));
            }
            if in_reasoning || self.may_close {
                markers.push((Marker::ClosesReasoning, tags.closing));
            }
        }
        if let Some(syntax) = self.syntax {
            let openings = syntax.openings().iter();
            markers.extend(openings.map(|opening| (Marker::OpensCall, *opening)));
        }
        markers.extend(self.ignored.iter().map(|marker| (Marker::Ignored, *marker)));
        markers.into_iter().unzip()
    }

    /// Gives out text or reasoning up to the next marker; whether there was one.
    fn prose(&mut self, out: &mut Vec<Piece>) -> bool {
        if self.drops_space {
            let text = self.held.text();
            self.held.take(text.len() - text.trim_start().len());
            self.drops_space = self.held.text().is_empty();
        }
        if self.begins_bare_call() {
            return true;
        }
        let (kinds, markers) = self.markers();
        let Some((index, at)) = self.held.find(&markers) else {
            let mut settled = self.held.settled(&markers);
            if !markers.is_empty() {
                settled = self.held.text()[..settled].trim_end().len();
            }
            self.give(settled, out);
            return false;
        };
        let said_bytes = self.held.text()[..at].trim_end().len();
        self.give(said_bytes, out);
        let marker = markers[index];
        let space_bytes = at - said_bytes;
        if kinds[index] == Marker::OpensCall {
            self.ending = Ending::default();
            self.mode = Mode::Call {
                space_bytes,
                opening: marker,
                in_reasoning: matches!(self.mode, Mode::Reasoning),
            };
            return true;
        }
        self.held.take(space_bytes + marker.len());
        self.drops_space = true;
        match kinds[index] {
            Marker::OpensReasoning => self.mode = Mode::Reasoning,
            Marker::ClosesReasoning => {
                self.mode = Mode::Text;
                self.may_close = false;
            }
            Marker::OpensCall | Marker::Ignored => {}
        }
        true
    }

    /// Whether the answer begins with a call that has no marker.
    fn begins_bare_call(&mut self) -> bool {
        let Some(syntax) = self.syntax else {
            return false;
        };
        let text = self.held.text();
        let trimmed = text.trim_start();
        let mut openings = syntax.bare_openings().iter();
        let begins = self.may_be_bare_call
            && matches!(self.mode, Mode::Text)
            && openings.any(|opening| trimmed.starts_with(opening));
        if begins {
            self.ending = Ending::default();
            self.mode = Mode::Call {
                space_bytes: text.len() - trimmed.len(),
                opening: "",
                in_reasoning: false,
            };
        }
        begins
    }

    /// Reads an open call; whether there was an outcome.
    fn call(&mut self, end: End, was_cut: &mut bool, out: &mut Vec<Piece>) -> bool {
        let (
            Some(syntax),
            Mode::Call {
                space_bytes,
                opening,
                in_reasoning,
            },
        ) = (self.syntax, self.mode)
        else {
            return false;
        };
        if end == End::NotYet && !self.may_have_ended(syntax) {
            return false;
        }
        let from = space_bytes + opening.len();
        let text = &self.held.text()[from..];
        let mut cursor = Cursor::new(text, end == End::Complete);
        match syntax.first(opening, &mut cursor, &self.tools) {
            Ok(calls) => {
                self.held.take(from + cursor.byte_count());
                out.extend(calls.into_iter().map(Piece::ToolCall));
                self.ending = Ending::default();
                self.mode = Mode::Block {
                    opening,
                    in_reasoning,
                };
                return true;
            }
            Err(Stop::More) if end == End::NotYet => return false,
            Err(Stop::More) => *was_cut |= end == End::Cut,
            Err(Stop::Not) => {}
        }
        self.mode = if in_reasoning {
            Mode::Reasoning
        } else {
            Mode::Text
        };
        let first = text.chars().next().map_or(0, char::len_utf8);
        self.give(
            if opening.is_empty() {
                from + first
            } else {
                from
            },
            out,
        );
        true
    }

    /// Reads what follows a call; whether there was an outcome.
    fn block(&mut self, end: End, was_cut: &mut bool, out: &mut Vec<Piece>) -> bool {
        let (
            Some(syntax),
            Mode::Block {
                opening,
                in_reasoning,
            },
        ) = (self.syntax, self.mode)
        else {
            return false;
        };
        if end == End::NotYet && !self.may_have_ended(syntax) {
            return false;
        }
        let mut cursor = Cursor::new(self.held.text(), end == End::Complete);
        match syntax.next(opening, &mut cursor, &self.tools) {
            Ok(calls) => {
                self.held.take(cursor.byte_count());
                self.ending = Ending::default();
                if let Some(calls) = calls {
                    out.extend(calls.into_iter().map(Piece::ToolCall));
                    return true;
                }
            }
            Err(Stop::More) if end == End::NotYet => return false,
            Err(Stop::More) => {
                *was_cut |= end == End::Cut && !self.held.text().trim().is_empty();
            }
            Err(Stop::Not) => {}
        }
        self.mode = Mode::Text;
        self.may_close = in_reasoning;
        self.may_be_bare_call = true;
        self.drops_space = true;
        true
    }

    /// Whether reading again what is held can have an outcome.
    fn may_have_ended(&mut self, syntax: &dyn Syntax) -> bool {
        let text = self.held.text();
        self.ending.may_be_in(text, syntax.is_bracketed())
    }

    /// Gives out text of the current mode from the beginning of what is held.
    fn give(&mut self, byte_count: usize, out: &mut Vec<Piece>) {
        let text = self.held.take(byte_count);
        if matches!(self.mode, Mode::Text) && !text.trim().is_empty() {
            self.may_be_bare_call = false;
        }
        say(out, matches!(self.mode, Mode::Reasoning), text);
    }
}
