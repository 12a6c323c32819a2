//! The items of a Responses conversation as messages of a chat.

use serde_json::{Value, json};

use crate::{
    error::{Error, Result},
    protocol::{
        conversation::{Assistant, Call, Conversation, text_of},
        fields::Object,
        shared,
    },
};

/// Parts that hold text, with the field that it is in.
const INPUT: &[(&str, &str)] = &[("input_text", "text"), ("text", "text")];
const MESSAGE: &[(&str, &str)] = &[
    ("input_text", "text"),
    ("output_text", "text"),
    ("text", "text"),
    ("refusal", "refusal"),
];
const SUMMARY: &[(&str, &str)] = &[("summary_text", "text")];
const REASONING: &[(&str, &str)] = &[("reasoning_text", "text"), ("text", "text")];

/// Items of tools that the hosted service runs, and others that only it can read.
const HOSTED: &[&str] = &[
    "file_search_call",
    "computer_call",
    "computer_call_output",
    "web_search_call",
    "tool_search_call",
    "tool_search_output",
    "additional_tools",
    "configuration_update",
    "compaction",
    "compaction_trigger",
    "image_generation_call",
    "code_interpreter_call",
    "local_shell_call",
    "local_shell_call_output",
    "shell_call",
    "shell_call_output",
    "apply_patch_call",
    "apply_patch_call_output",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_call",
    "custom_tool_call",
    "custom_tool_call_output",
    "program",
    "program_output",
];

/// Messages from items. Reasoning, text and calls in a row are one turn of the assistant's, and
/// everything for the system goes into one message at the start.
#[derive(Debug, Default)]
pub(super) struct Items {
    system: Vec<String>,
    conversation: Conversation,
    turn: Assistant,
    /// Whether the turn's last item was a message.
    ends_with_text: bool,
}

impl Items {
    /// Begins with the request's instructions.
    pub(super) fn new(instructions: Option<&str>) -> Self {
        Self {
            system: instructions.map(str::to_owned).into_iter().collect(),
            ..Self::default()
        }
    }

    /// Adds the next item.
    pub(super) fn add(&mut self, item: &Object<'_>) -> Result<()> {
        match item.string("type")? {
            Some("item_reference") => Err(item.missing("id")),
            None | Some("message") => self.message(item),
            Some("reasoning") => self.reasoning(item),
            Some("function_call") => {
                item.only("namespace", &[])?;
                self.ends_with_text = false;
                self.turn.calls.push(Call {
                    id: item.required_string("call_id")?.into(),
                    name: item.required_string("name")?.into(),
                    arguments: shared::arguments(item)?,
                });
                Ok(())
            }
            Some("function_call_output") => {
                self.end_turn();
                let id = item.required_string("call_id")?;
                let text = text_of(item, "output", INPUT)?;
                self.conversation
                    .tool(id, &text, false, &item.place_of("call_id"))
            }
            Some(kind) if HOSTED.contains(&kind) => Err(item.unsupported("type")),
            Some(_) => Err(item.unknown("type")),
        }
    }

    fn message(&mut self, item: &Object<'_>) -> Result<()> {
        match item.required_string("role")? {
            "system" | "developer" => self.system.push(text_of(item, "content", INPUT)?),
            "user" => {
                self.end_turn();
                let text = text_of(item, "content", INPUT)?;
                self.conversation.user(&text, None);
            }
            "assistant" => {
                let text = text_of(item, "content", MESSAGE)?;
                // Text, a call and text again is one answer; text after text is another one.
                if self.ends_with_text {
                    self.end_turn();
                }
                self.turn.say(&text);
                self.ends_with_text = true;
            }
            _ => return Err(item.unknown("role")),
        }
        Ok(())
    }

    fn reasoning(&mut self, item: &Object<'_>) -> Result<()> {
        let text = |key: &str, parts| match item.get(key) {
            None => Ok(String::new()),
            Some(_) => text_of(item, key, parts),
        };
        let whole = text("content", REASONING)?;
        let summary = text("summary", SUMMARY)?;
        // An answer's reasoning comes before its text.
        if self.ends_with_text {
            self.end_turn();
        }
        self.turn
            .reason(if whole.is_empty() { &summary } else { &whole });
        Ok(())
    }

    fn end_turn(&mut self) {
        if !self.turn.is_empty() || self.ends_with_text {
            self.conversation.assistant(std::mem::take(&mut self.turn));
        }
        self.ends_with_text = false;
    }

    /// All messages.
    pub(super) fn finish(mut self) -> Result<Vec<Value>> {
        self.end_turn();
        let messages = self.conversation.finish("input")?;
        if self.system.is_empty() {
            return Ok(messages);
        }
        let system = json!({"role": "system", "content": self.system.join("\n\n")});
        Ok([vec![system], messages].concat())
    }
}

/// A request's input as a list of items.
pub(super) fn input_items(request: &Object<'_>) -> Result<Vec<Value>> {
    match request.get("input") {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![json!({
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": text}],
        })]),
        Some(Value::Array(items)) => Ok(items.clone()),
        Some(_) => Err(no_input(request)),
    }
}

/// The id of the item that this one refers to. Nothing but its id says that it is a reference.
pub(super) fn referenced_id(item: &Value) -> Option<&str> {
    match item["type"].as_str() {
        Some("item_reference") => {}
        None if item["type"].is_null() && item["role"].is_null() => {}
        _ => return None,
    }
    item["id"].as_str()
}

fn no_input(request: &Object<'_>) -> Error {
    request.malformed("text or a list of items", "input")
}
