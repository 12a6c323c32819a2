//! Prompts that end inside the last message, for the model to continue it.
//!
//! Templates close each message. So the text to continue is marked at its end, and the
//! prompt is cut at the mark (transformers' `continue_final_message`).

use serde_json::Value;

use super::request::{REASONING, Request};
use crate::error::{Error, Kind, Result};

/// Written behind the text. The space shows whether the template trims what it prints.
const MARK: &str = "CONTINUE_FINAL_MESSAGE_TAG ";

/// The end of the prompt of a marked request.
pub(super) struct Continuation {
    text: String,
}

impl Continuation {
    /// Marks the end of the field that `request` wants continued.
    pub(super) fn mark(request: &mut Request, field: &str, template: &str) -> Result<Self> {
        let refused = |problem: &str| {
            Error::new(
                Kind::InvalidArgument,
                format!("continue_final_message: {problem}: {field}"),
            )
        };
        let message = request
            .messages
            .last_mut()
            .and_then(Value::as_object_mut)
            .ok_or_else(|| refused("no message with the field"))?;
        let original = message
            .get(field)
            .cloned()
            .ok_or_else(|| refused("last message has no field"))?;
        // Reasoning goes by several names; the template reads one of them.
        let fields: Vec<&str> = if REASONING.contains(&field) {
            let same = |name: &&&str| message.get(**name) == Some(&original);
            REASONING.iter().filter(same).copied().collect()
        } else {
            vec![field]
        };
        if !fields.iter().any(|name| template.contains(name)) {
            return Err(refused("chat template does not read the field"));
        }
        let mut text = None;
        for name in fields {
            let end = message
                .get_mut(name)
                .and_then(last_text)
                .ok_or_else(|| refused("no text in the field"))?;
            text.get_or_insert_with(|| end.clone());
            end.push_str(MARK);
        }
        Ok(Self {
            text: text.ok_or_else(|| refused("no text in the field"))?,
        })
    }

    /// Cuts the rendered prompt at the mark.
    pub(super) fn cut(&self, mut prompt: String) -> Result<String> {
        let at = prompt
            .rfind(MARK.trim_end())
            .filter(|_| prompt.contains(self.text.trim()))
            .ok_or_else(|| {
                Error::new(
                    Kind::Template,
                    "chat template does not print the final message as it is, so it cannot be continued",
                )
            })?;
        let is_trimmed = !prompt[at..].starts_with(MARK);
        prompt.truncate(at);
        if is_trimmed {
            prompt.truncate(prompt.trim_end().len());
        }
        Ok(prompt)
    }
}

/// The text itself, or the last text among content parts.
fn last_text(value: &mut Value) -> Option<&mut String> {
    match value {
        Value::String(text) => Some(text),
        Value::Array(parts) => parts
            .iter_mut()
            .rev()
            .find_map(|part| match part.get_mut("text") {
                Some(Value::String(text)) => Some(text),
                _ => None,
            }),
        _ => None,
    }
}
