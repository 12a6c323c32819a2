//! Takes a model's text apart while it arrives.

use serde_json::Value;

use super::harmony::Harmony;
use super::tagged::Tagged;
use super::tools::Schemas;
use super::{OutputFormat, Piece, Unfinished};

/// Takes a model's text apart while it arrives. What it gives out in all depends on the text
/// alone, never on how the text was cut.
#[derive(Clone, Debug)]
pub(crate) struct OutputParser {
    grammar: Grammar,
}

#[derive(Clone, Debug)]
enum Grammar {
    Tagged(Tagged),
    Harmony(Harmony),
}

impl OutputParser {
    /// A parser for the answer to a prompt. `prompt_end` is the end of the rendered prompt,
    /// which may have opened the reasoning, or with [`OutputFormat::tool_call_opening`] a tool
    /// call. `tools` are the request's tools in their nested form, whose schemas decode the
    /// arguments; without any, nothing is a call.
    pub(crate) fn new(format: &OutputFormat, tools: &[Value], prompt_end: &str) -> Self {
        let tools = Schemas::new(tools);
        let grammar = if format.is_harmony {
            Grammar::Harmony(Harmony::new(tools, prompt_end))
        } else {
            Grammar::Tagged(Tagged::new(format, tools, prompt_end))
        };
        Self { grammar }
    }

    /// Takes the next text, with special tokens as text, and gives out what is settled. Held
    /// back is what may still become a marker, white space that a marker may follow, and a
    /// call until it is whole.
    pub(crate) fn push(&mut self, text: &str) -> Vec<Piece> {
        match &mut self.grammar {
            Grammar::Tagged(tagged) => tagged.push(text),
            Grammar::Harmony(harmony) => harmony.push(text),
        }
    }

    /// The rest. `is_cut` says that the text ended for its length. A call that does not parse
    /// comes back as text: nothing is lost.
    pub(crate) fn finish(self, is_cut: bool) -> (Vec<Piece>, Unfinished) {
        match self.grammar {
            Grammar::Tagged(tagged) => tagged.finish(is_cut),
            Grammar::Harmony(harmony) => harmony.finish(is_cut),
        }
    }

    /// Whether what comes next is reasoning, as far as is known.
    pub(crate) fn reasoning_is_open(&self) -> bool {
        match &self.grammar {
            Grammar::Tagged(tagged) => tagged.reasoning_is_open(),
            Grammar::Harmony(harmony) => harmony.reasoning_is_open(),
        }
    }
}
