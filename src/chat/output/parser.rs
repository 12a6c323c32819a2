//! Takes a model's text apart while it arrives.

use serde_json::Value;

use super::{OutputFormat, Piece, Unfinished};

/// Takes a model's text apart while it arrives. What it gives out depends on the text alone,
/// never on how it was cut into pieces, save where reasoning and text are divided.
#[derive(Clone, Debug)]
pub(crate) struct OutputParser {}

impl OutputParser {
    /// A parser for the answer to a prompt. `prompt_end` is the end of the rendered prompt,
    /// which may have opened the reasoning, or with [`OutputFormat::tool_call_opening`] a tool
    /// call. `tools` are the request's tools in their nested form, whose schemas decode the
    /// arguments; without any, nothing is a call.
    pub(crate) fn new(_format: &OutputFormat, _tools: &[Value], _prompt_end: &str) -> Self {
        Self {}
    }

    /// Takes the next text, with special tokens as text, and gives out what is settled. Held
    /// back is only what may still become a marker, and a call until it is whole.
    pub(crate) fn push(&mut self, text: &str) -> Vec<Piece> {
        match text {
            "" => Vec::new(),
            text => vec![Piece::Text(text.to_owned())],
        }
    }

    /// The rest. `is_cut` says that the text ended for its length. A call that does not parse
    /// comes back as text: nothing is lost.
    pub(crate) fn finish(self, _is_cut: bool) -> (Vec<Piece>, Unfinished) {
        (Vec::new(), Unfinished::default())
    }

    /// Whether what comes next is reasoning, as far as is known.
    pub(crate) fn reasoning_is_open(&self) -> bool {
        false
    }
}
