//! What a model's text means: reasoning, text for the user, and tool calls.
//!
//! [`OutputFormat`] says how a model's family writes them; [`OutputParser`] takes a text
//! apart while it arrives. The text is the model's with special tokens in it.

mod ending;
mod format;
mod harmony;
mod held;
mod parser;
mod reasoning;
mod tagged;
mod tools;

#[cfg(test)]
mod call_tests;
#[cfg(test)]
mod marker_tests;
#[cfg(test)]
pub(super) mod real_templates;
#[cfg(test)]
mod slip_tests;
#[cfg(test)]
pub(super) mod tests;

use serde_json::{Map, Value};

pub(crate) use self::format::OutputFormat;
pub(crate) use self::parser::OutputParser;

/// A part of what a model wrote.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece {
    /// What the model said to itself. Consecutive pieces continue each other.
    Reasoning(String),
    /// What it said to the user. Consecutive pieces continue each other.
    Text(String),
    /// A whole call.
    ToolCall(ToolCall),
}

/// A model's wish to call a tool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolCall {
    pub(crate) name: String,
    /// In the model's order, decoded against the tool's schema.
    pub(crate) arguments: Map<String, Value>,
}

/// What was open when the text ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unfinished {
    /// The text was cut inside a tool call, which came back as text.
    pub(crate) call: bool,
    /// The reasoning had not ended.
    pub(crate) reasoning: bool,
}

/// Adds text or reasoning to what is given out, or to its last piece of the same kind.
fn say(out: &mut Vec<Piece>, is_reasoning: bool, text: String) {
    match (out.last_mut(), is_reasoning) {
        _ if text.is_empty() => {}
        (Some(Piece::Reasoning(last)), true) | (Some(Piece::Text(last)), false) => {
            last.push_str(&text);
        }
        (_, true) => out.push(Piece::Reasoning(text)),
        (_, false) => out.push(Piece::Text(text)),
    }
}
