//! A request as token ids: what messages say never becomes a control token.

use std::collections::HashSet;
use std::sync::OnceLock;

use serde_json::Value;

use super::literals::{Literals, Marks};
use super::request::Request;
use super::template::ChatTemplate;
use crate::error::{Error, Kind, Result};
use crate::tokenizer::{GuardedTokenizer, Stretch, Tokenizer};

/// The ids of a rendered request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatTokens {
    /// The prompt.
    pub ids: Vec<u32>,
    /// How many of the ids, from the first, the prompt of the conversation's next turn
    /// begins with, whatever is answered and asked. At most up to the end of the last
    /// message: a state saved there serves the next turn.
    pub stable_count: usize,
}

/// The control tokens that a template uses, and how to keep messages from using them.
pub(super) struct Control {
    /// Tokens that no message may hold.
    special: Literals,
    /// These, and the other tokens of the template's language, such as `<tool_call>`. The
    /// model's own messages may hold those.
    all: Literals,
    ids: HashSet<u32>,
    guarded: OnceLock<Result<GuardedTokenizer>>,
}

impl Control {
    /// Control tokens are all special tokens, and added tokens that the template writes or
    /// that look like control tokens; those of white space are ordinary text.
    pub(super) fn new(tokenizer: &Tokenizer, template: &str) -> Self {
        let mut special = Vec::new();
        let mut all = Vec::new();
        let mut ids = HashSet::new();
        for (id, token) in tokenizer.added_tokens() {
            let text = &token.content;
            let is_marker = text.starts_with("<|") && text.ends_with("|>");
            let is_written = template.contains(text.as_str()) && !text.trim().is_empty();
            if token.special {
                special.push(text.clone());
            }
            if token.special || is_marker || is_written {
                all.push(text.clone());
                ids.insert(id);
            }
        }
        Self {
            special: Literals::new(special),
            all: Literals::new(all),
            ids,
            guarded: OnceLock::new(),
        }
    }

    fn guarded(&self, tokenizer: &Tokenizer) -> Result<&GuardedTokenizer> {
        self.guarded
            .get_or_init(|| GuardedTokenizer::new(tokenizer, self.ids.clone()))
            .as_ref()
            .map_err(|error| Error::new(error.kind(), error.message()))
    }
}

/// A rendered prompt with the control tokens that its messages quote.
pub(super) struct Prompt {
    pub(super) text: String,
    /// The ranges of `text` that are plain text though they read like control tokens, and
    /// empty ones where control tokens must not arise.
    quotes: Vec<std::ops::Range<usize>>,
}

impl Prompt {
    /// Renders a request. A template that reads a quoted token itself, as some do with
    /// `<tool_response>` in a user's message, decides what it means.
    pub(super) fn render(template: &ChatTemplate, request: &Request) -> Result<Self> {
        let text = template.render_request(request)?;
        let control = template.control(request)?;
        let whole = request.texts();
        let marks = Marks::absent_from(&whole)
            .ok_or_else(|| Error::new(Kind::InvalidArgument, "messages hold every noncharacter"))?;
        let mut marked = request.clone();
        if !mark(&mut marked, &control.all, &control.special, marks) {
            return Ok(Self {
                text,
                quotes: Vec::new(),
            });
        }
        let prompt = Self::unmark(&template.render_request(&marked)?, marks);
        if prompt.text == text {
            return Ok(prompt);
        }
        let mut marked = request.clone();
        if !mark(&mut marked, &control.special, &control.special, marks) {
            return Ok(Self {
                text,
                quotes: Vec::new(),
            });
        }
        Ok(Self::unmark(&template.render_request(&marked)?, marks))
    }

    /// Takes the marks out. One without its other half separates what stands beside it.
    fn unmark(marked: &str, marks: Marks) -> Self {
        let mut prompt = Self {
            text: String::with_capacity(marked.len()),
            quotes: Vec::new(),
        };
        let mut opened = None;
        for character in marked.chars() {
            let at = prompt.text.len();
            if character == marks.open {
                opened = Some(at);
                prompt.quotes.push(at..at);
            } else if character == marks.close {
                match (opened.take(), prompt.quotes.last_mut()) {
                    (Some(_), Some(quote)) => quote.end = at,
                    _ => prompt.quotes.push(at..at),
                }
            } else {
                prompt.text.push(character);
            }
        }
        prompt
    }

    pub(super) fn has_quotes(&self) -> bool {
        !self.quotes.is_empty()
    }

    /// The ids of the whole prompt.
    pub(super) fn encode(&self, template: &Control, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
        if self.quotes.is_empty() {
            return tokenizer.encode(&self.text, false);
        }
        let mut stretches = Vec::new();
        let mut at = 0;
        for quote in &self.quotes {
            stretches.push(Stretch::Trusted(&self.text[at..quote.start]));
            stretches.push(Stretch::Plain(&self.text[quote.clone()]));
            at = quote.end;
        }
        stretches.push(Stretch::Trusted(&self.text[at..]));
        template.guarded(tokenizer)?.encode(tokenizer, &stretches)
    }
}

/// Marks the literals of a request; whether there were any.
fn mark(request: &mut Request, all: &Literals, special: &Literals, marks: Marks) -> bool {
    let mut found = false;
    for message in &mut request.messages {
        let is_own = message.get("role").and_then(Value::as_str) == Some("assistant");
        let literals = if is_own { special } else { all };
        found |= literals.mark(message, marks);
    }
    let lists = [&mut request.tools, &mut request.documents];
    for value in lists.into_iter().flatten().flatten() {
        found |= all.mark(value, marks);
    }
    for value in request.variables.values_mut() {
        found |= all.mark(value, marks);
    }
    found
}
