//! Building the messages of a chat from what a request holds, in its order.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::{
    failure::Mistake,
    fields::{Object, mistake, mistake_in},
};
use crate::{
    error::{Error, Result},
    escape::Escaped,
};

/// Between texts that were parts of one message.
const BETWEEN_PARTS: &str = "\n";

/// Between texts that were messages of their own.
const BETWEEN_MESSAGES: &str = "\n\n";

/// The messages so far.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    messages: Vec<Value>,
    /// The tools that were called, by the ids of the calls.
    called: HashMap<String, String>,
}

/// An assistant's turn.
#[derive(Debug, Default)]
pub(super) struct Assistant {
    pub(super) name: Option<String>,
    pub(super) reasoning: String,
    pub(super) text: String,
    pub(super) calls: Vec<Call>,
}

/// A tool call of an assistant's turn.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    /// An object, or JSON text of one.
    pub(super) arguments: Value,
}

impl Conversation {
    /// Adds a system message. At the start there is one of them: templates expect no second.
    pub(super) fn system(&mut self, text: &str) {
        match self.messages.as_mut_slice() {
            [only] if only["role"] == "system" => join(only, text),
            _ => self.push("system", text, None),
        }
    }

    /// Adds a user's message.
    pub(super) fn user(&mut self, text: &str, name: Option<&str>) {
        self.push("user", text, name);
    }

    /// Adds a user's text to the turn that is the user's already, or as a new one.
    pub(super) fn user_turn(&mut self, text: &str) {
        match self.messages.last_mut() {
            Some(last) if last["role"] == "user" => join(last, text),
            _ => self.push("user", text, None),
        }
    }

    /// Adds an assistant's turn.
    pub(super) fn assistant(&mut self, turn: Assistant) {
        let mut message = Map::new();
        message.insert("role".into(), json!("assistant"));
        if let Some(name) = turn.name {
            message.insert("name".into(), name.into());
        }
        if !turn.reasoning.is_empty() {
            message.insert("reasoning_content".into(), turn.reasoning.into());
        }
        message.insert("content".into(), turn.text.into());
        if !turn.calls.is_empty() {
            let calls = turn.calls.into_iter().map(|call| {
                self.called.insert(call.id.clone(), call.name.clone());
                json!({
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                })
            });
            message.insert("tool_calls".into(), calls.collect());
        }
        self.messages.push(Value::Object(message));
    }

    /// Adds what a tool returned. `place` names the field that holds the call's id.
    pub(super) fn tool(
        &mut self,
        call_id: &str,
        text: &str,
        is_error: bool,
        place: &str,
    ) -> Result<()> {
        let name = self.called.get(call_id).ok_or_else(|| {
            let what = "no tool call with this id comes before";
            mistake_in(Mistake::Value, what, place, Escaped(call_id))
        })?;
        let mut message = json!({
            "role": "tool",
            "tool_call_id": call_id,
            "name": name,
            "content": text,
        });
        if is_error {
            message["is_error"] = json!(true);
        }
        self.messages.push(message);
        Ok(())
    }

    /// All of them; `place` names the field where they should have been.
    pub(super) fn finish(self, place: &str) -> Result<Vec<Value>> {
        if self.messages.is_empty() {
            return Err(mistake(Mistake::Missing, "no messages", place));
        }
        Ok(self.messages)
    }

    fn push(&mut self, role: &str, text: &str, name: Option<&str>) {
        let mut message = Map::new();
        message.insert("role".into(), role.into());
        if let Some(name) = name {
            message.insert("name".into(), name.into());
        }
        message.insert("content".into(), text.into());
        self.messages.push(Value::Object(message));
    }
}

impl Assistant {
    /// Whether it holds nothing yet.
    pub(super) fn is_empty(&self) -> bool {
        self.reasoning.is_empty() && self.text.is_empty() && self.calls.is_empty()
    }

    /// Adds text.
    pub(super) fn say(&mut self, text: &str) {
        append(&mut self.text, text, BETWEEN_MESSAGES);
    }

    /// Adds reasoning.
    pub(super) fn reason(&mut self, text: &str) {
        append(&mut self.reasoning, text, BETWEEN_MESSAGES);
    }
}

fn join(message: &mut Value, text: &str) {
    if let Some(Value::String(content)) = message.get_mut("content") {
        append(content, text, BETWEEN_MESSAGES);
    }
}

fn append(whole: &mut String, text: &str, between: &str) {
    if !whole.is_empty() && !text.is_empty() {
        whole.push_str(between);
    }
    whole.push_str(text);
}

/// A content: text, or a list of parts of which each is a text in one of `fields`, by type.
pub(super) fn text_of(owner: &Object<'_>, key: &str, fields: &[(&str, &str)]) -> Result<String> {
    match owner.get(key) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(_)) => {
            let mut whole = String::new();
            for part in owner.objects(key)?.unwrap_or_default() {
                append(&mut whole, part_text(&part, fields)?, BETWEEN_PARTS);
            }
            Ok(whole)
        }
        Some(_) => Err(owner.malformed("text or a list of parts", key)),
        None => Err(owner.missing(key)),
    }
}

/// The text of a part whose type is one of `fields`.
pub(super) fn part_text<'a>(part: &Object<'a>, fields: &[(&str, &str)]) -> Result<&'a str> {
    let kind = part.required_string("type")?;
    match fields.iter().find(|(name, _)| *name == kind) {
        Some((_, field)) => part.required_string(field),
        None => Err(unsupported_part(part, kind)),
    }
}

/// Parts and items that the protocols know and that are no text.
const KNOWN_PARTS: &[&str] = &[
    "image_url",
    "input_image",
    "image",
    "input_audio",
    "audio",
    "file",
    "input_file",
    "document",
    "search_result",
    "video",
    "video_url",
    "computer_screenshot",
    "text",
    "input_text",
    "output_text",
    "refusal",
    "thinking",
    "redacted_thinking",
    "tool_use",
    "tool_result",
    "server_tool_use",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "tool_reference",
    "browser_state",
    "advisor_tool_result",
    "mcp_tool_listing",
    "tool_addition",
    "tool_removal",
    "container_upload",
    "mcp_tool_use",
    "mcp_tool_result",
    "reasoning_text",
    "summary_text",
    "fallback",
    "compaction",
];

/// The part is of a type that cannot stand here, or is none at all.
pub(super) fn unsupported_part(part: &Object<'_>, kind: &str) -> Error {
    if KNOWN_PARTS.contains(&kind) {
        part.unsupported("type")
    } else {
        part.unknown("type")
    }
}
