//! gpt-oss's harmony format: each message has a channel, which says what it is.
//!
//! `<|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...`

use super::held::Held;
use super::tools::{Cursor, Read, Schemas, Stop, arguments_of, whole};
use super::{Piece, ToolCall, Unfinished, say};

const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";

/// What ends a message. The last two belong to the next one.
const ENDS: [&str; 5] = ["<|end|>", "<|return|>", "<|call|>", START, CHANNEL];

/// Takes an answer in this format apart. Analysis is reasoning, a message to a function is a
/// call, everything else is text.
#[derive(Clone, Debug)]
pub(super) struct Harmony {
    tools: Schemas,
    held: Held,
    mode: Mode,
}

#[derive(Clone, Debug)]
enum Mode {
    /// Before a message.
    Header,
    Reasoning,
    Text,
    /// A message to a function; its header is still held.
    Call {
        name: String,
        header_bytes: usize,
    },
}

/// The beginning of a message that calls a function, or this one.
pub(super) fn seed(name: Option<&str>) -> String {
    let before = format!("{CHANNEL}commentary to=functions.");
    match name {
        Some(name) => format!("{before}{name} <|constrain|>json{MESSAGE}"),
        None => before,
    }
}

impl Harmony {
    pub(super) fn new(tools: Schemas, prompt_end: &str) -> Self {
        let begun = prompt_end.rfind(START).map_or("", |at| &prompt_end[at..]);
        let mut harmony = Self {
            tools,
            held: Held::prompt(begun),
            mode: Mode::Header,
        };
        harmony.run(&mut Vec::new());
        harmony
    }

    pub(super) fn push(&mut self, text: &str) -> Vec<Piece> {
        let mut out = Vec::new();
        self.held.push(text);
        self.run(&mut out);
        out
    }

    pub(super) fn finish(mut self, is_cut: bool) -> (Vec<Piece>, Unfinished) {
        let mut out = Vec::new();
        let mut unfinished = Unfinished {
            call: false,
            reasoning: matches!(self.mode, Mode::Reasoning),
        };
        let rest = self.held.text().len();
        match &self.mode {
            Mode::Call { name, header_bytes } => {
                let end = self.held.settled(&ENDS).max(*header_bytes);
                let body = &self.held.text()[*header_bytes..end];
                if let Some(call) = self.call(name, body)
                    && !(is_cut && body.trim().is_empty())
                {
                    return (vec![Piece::ToolCall(call)], unfinished);
                }
                unfinished.call = is_cut;
            }
            // A header alone says nothing, unless it calls.
            Mode::Header if self.held.text().contains("to=") => unfinished.call = is_cut,
            Mode::Header => return (out, unfinished),
            Mode::Reasoning | Mode::Text => {}
        }
        self.give(rest, &mut out);
        (out, unfinished)
    }

    pub(super) fn reasoning_is_open(&self) -> bool {
        matches!(self.mode, Mode::Reasoning)
    }

    fn run(&mut self, out: &mut Vec<Piece>) {
        loop {
            let goes_on = match &self.mode {
                Mode::Header => self.header(out),
                Mode::Reasoning | Mode::Text | Mode::Call { .. } => self.body(out),
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Reads a header; whether there was an outcome.
    fn header(&mut self, out: &mut Vec<Piece>) -> bool {
        if self.held.text().is_empty() {
            return false;
        }
        let mut cursor = Cursor::new(self.held.text(), false);
        let header = match header(&mut cursor) {
            Ok(header) => header,
            Err(Stop::More) => return false,
            // The model writes as others do. A marker here is text like the rest.
            Err(Stop::Not) => {
                self.mode = Mode::Text;
                let text = self.held.text();
                let marker = [START, CHANNEL]
                    .into_iter()
                    .find(|marker| text.starts_with(marker));
                self.give(marker.map_or(0, str::len), out);
                return true;
            }
        };
        let header_bytes = cursor.byte_count();
        let called = header.recipient.and_then(|recipient| {
            let name = recipient.strip_prefix("functions.");
            let name = name.or_else(|| self.tools.has(recipient).then_some(recipient));
            name.filter(|_| !self.tools.is_empty()).map(str::to_owned)
        });
        let is_reasoning = header.channel == Some("analysis");
        self.mode = match called {
            Some(name) => Mode::Call { name, header_bytes },
            None => {
                self.held.take(header_bytes);
                if is_reasoning {
                    Mode::Reasoning
                } else {
                    Mode::Text
                }
            }
        };
        true
    }

    /// Reads a message; whether it has ended.
    fn body(&mut self, out: &mut Vec<Piece>) -> bool {
        let Some((index, at)) = self.held.find(&ENDS) else {
            if !matches!(self.mode, Mode::Call { .. }) {
                self.give(self.held.settled(&ENDS), out);
            }
            return false;
        };
        let called = match &self.mode {
            Mode::Call { name, header_bytes } => {
                // The header itself has a marker.
                let body = &self.held.text()[*header_bytes..];
                let Some((index, at)) = find_end(body) else {
                    return false;
                };
                Some((self.call(name, &body[..at]), index, header_bytes + at))
            }
            _ => None,
        };
        let (index, at) = match called {
            Some((Some(call), index, at)) => {
                self.held.take(at);
                out.push(Piece::ToolCall(call));
                (index, 0)
            }
            Some((None, index, at)) => (index, at),
            None => (index, at),
        };
        self.give(at, out);
        if ![START, CHANNEL].contains(&ENDS[index]) {
            self.held.take(ENDS[index].len());
        }
        self.mode = Mode::Header;
        true
    }

    fn call(&self, name: &str, body: &str) -> Option<ToolCall> {
        let arguments = match body.trim() {
            "" => serde_json::Map::new(),
            text => arguments_of(whole(text)?)?,
        };
        Some(ToolCall {
            name: name.to_owned(),
            arguments: self.tools.mend(name, arguments),
        })
    }

    fn give(&mut self, byte_count: usize, out: &mut Vec<Piece>) {
        let text = self.held.take(byte_count);
        say(out, matches!(self.mode, Mode::Reasoning), text);
    }
}

fn find_end(body: &str) -> Option<(usize, usize)> {
    let found = ENDS
        .iter()
        .enumerate()
        .filter_map(|(index, marker)| Some((body.find(marker)?, index)));
    found.min().map(|(at, index)| (index, at))
}

/// What a header says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Header<'a> {
    channel: Option<&'a str>,
    recipient: Option<&'a str>,
}

/// Reads a header and the marker behind it.
fn header<'a>(cursor: &mut Cursor<'a>) -> Read<Header<'a>> {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let mut header = Header::default();
    loop {
        cursor.space();
        let parts = [MESSAGE, CHANNEL, "<|constrain|>", START, "to=", "assistant"];
        match cursor.eat_one_of(&parts)? {
            Some(0) => return Ok(header),
            Some(1) => header.channel = Some(cursor.word(is_word)?),
            Some(4) => {
                header.recipient =
                    Some(cursor.word(|character| !character.is_whitespace() && character != '<')?);
            }
            Some(2..) => {}
            // The type of the content.
            None if header.channel.is_some() => {
                cursor.word(is_word)?;
            }
            None => return Err(Stop::Not),
        }
    }
}
