//! How a model's family writes reasoning and tool calls.

use crate::chat::ChatTemplate;
use crate::tokenizer::Tokenizer;

/// How a model's family writes reasoning and tool calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutputFormat {}

impl OutputFormat {
    /// The format of a model, found from what its template writes and its vocabulary holds.
    pub(crate) fn of(_template: &ChatTemplate, _tokenizer: &Tokenizer) -> Self {
        Self::default()
    }

    /// The format of this name; the override where a model's own files mislead.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        (name == "plain").then(Self::default)
    }

    /// The text with which the assistant's turn begins if the model must call a tool, or this
    /// tool. None: the family's calls have no marker.
    pub(crate) fn tool_call_opening(&self, _name: Option<&str>) -> Option<String> {
        None
    }

    /// Whether the model's reasoning can be told from its text.
    pub(crate) fn has_reasoning(&self) -> bool {
        false
    }

    /// Whether the model's tool calls can be told from its text.
    pub(crate) fn has_tools(&self) -> bool {
        false
    }
}
