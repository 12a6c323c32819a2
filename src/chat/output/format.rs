//! How a model's family writes reasoning and tool calls.

use std::sync::Arc;

use super::harmony;
use super::reasoning::Tags;
use super::tools::{self, Syntax};
use crate::chat::ChatTemplate;
use crate::tokenizer::Tokenizer;

/// How a model's family writes reasoning and tool calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutputFormat {
    pub(super) is_harmony: bool,
    pub(super) reasoning: Option<&'static Tags>,
    pub(super) tools: Option<&'static dyn Syntax>,
    /// Markers without a meaning of their own.
    pub(super) ignored: &'static [&'static str],
    /// The special tokens of the vocabulary.
    pub(super) special_tokens: Arc<[String]>,
}

/// What Kimi K3 writes around its text.
const KIMI_K3_FRAME: &[&str] = &[
    "<|open|>response<|sep|>",
    "<|close|>response<|sep|>",
    "<|close|>message<|sep|>",
];

impl OutputFormat {
    /// The format of a model, found from what its files name, its template writes and its
    /// vocabulary holds.
    pub(crate) fn of(template: &ChatTemplate, tokenizer: &Tokenizer) -> Self {
        let has_token = |token: &str| tokenizer.token_to_id(token).is_some();
        let mut format = Self::find(&template.sources().collect::<String>(), has_token);
        let special_tokens = tokenizer.added_tokens().filter(|(_, token)| token.special);
        format.special_tokens = special_tokens
            .map(|(_, token)| token.content.clone())
            .collect();
        let named = template.tool_syntax().and_then(tools::by_name_in_files);
        format.tools = named.or(format.tools);
        format
    }

    fn find(template: &str, has_token: impl Fn(&str) -> bool) -> Self {
        if template.contains("<|channel|>") && template.contains("<|message|>") {
            return Self {
                is_harmony: true,
                ..Self::default()
            };
        }
        let name = tools::find(template).or_else(|| tools::find_in_vocabulary(&has_token));
        Self {
            reasoning: Tags::find(template, has_token),
            ignored: if name == Some("kimi_k3") {
                KIMI_K3_FRAME
            } else {
                &[]
            },
            tools: name.and_then(tools::by_name),
            ..Self::default()
        }
    }

    /// The format of this name, for tests: `plain`,
    /// `harmony`, the name of a syntax for tool calls, the name of one for reasoning, or both
    /// as in `json+think`.
    #[cfg(test)]
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        let mut format = Self::default();
        match name {
            "plain" => return Some(format),
            "harmony" => {
                format.is_harmony = true;
                return Some(format);
            }
            _ => {}
        }
        for part in name.split('+') {
            if let Some(tags) = Tags::by_name(part) {
                format.reasoning = Some(tags);
            } else {
                format.tools = Some(tools::by_name(part)?);
                if part == "kimi_k3" {
                    format.ignored = KIMI_K3_FRAME;
                }
            }
        }
        Some(format)
    }

    /// The text with which the assistant's turn begins if the model must call a tool, or this
    /// tool. None: nothing marks the family's calls. Where the prompt has opened the reasoning,
    /// [`reasoning_closing`](Self::reasoning_closing) comes first.
    pub(crate) fn tool_call_opening(&self, name: Option<&str>) -> Option<String> {
        if self.is_harmony {
            return Some(harmony::seed(name));
        }
        self.tools.map(|syntax| syntax.seed(name))
    }

    /// The text that ends the reasoning, if the prompt ends inside it.
    pub(crate) fn reasoning_closing(&self, prompt_end: &str) -> Option<&'static str> {
        self.reasoning
            .filter(|tags| tags.are_open_in(prompt_end, &self.special_tokens))
            .map(|tags| tags.closing)
    }
}
