//! One turn of a chat, as every protocol's request asks for it.

use serde_json::{Value, json};

use super::{sampling::SamplingFields, tools::ToolChoice};

/// What a request asks for, whichever protocol it came in.
#[derive(Clone, Debug)]
pub(crate) struct ChatTurn {
    /// Messages as chat templates take them.
    pub(crate) messages: Vec<Value>,
    /// The tools that the model is told of, in the nested form.
    pub(crate) tools: Vec<Value>,
    /// Whether a tool must be called.
    pub(crate) tool_choice: ToolChoice,
    /// Whether one answer may call several tools.
    pub(crate) parallel_tool_calls: bool,
    /// Variables for the chat template.
    pub(crate) template_variables: serde_json::Map<String, Value>,
    /// Whether the last message is one of the assistant's that the answer continues.
    pub(crate) continues_last_message: bool,
    /// The most tokens to generate.
    pub(crate) max_tokens: Option<u64>,
    /// What ends the answer.
    pub(crate) stop: Vec<String>,
    /// How tokens are drawn, where the request says so.
    pub(crate) sampling: SamplingFields,
    /// The log-probabilities to tell: those of so many of the most likely tokens too.
    pub(crate) logprobs: Option<u32>,
    /// The adapter to answer with.
    pub(crate) adapter: Option<String>,
    /// The name that the request gives the model.
    pub(crate) model: Option<String>,
}

impl ChatTurn {
    /// What [`ChatTemplate::render`](crate::chat::ChatTemplate::render) takes.
    pub(crate) fn to_chat(&self) -> Value {
        let mut chat = serde_json::Map::new();
        chat.insert("messages".into(), self.messages.clone().into());
        if !self.tools.is_empty() {
            chat.insert("tools".into(), self.tools.clone().into());
        }
        if self.continues_last_message {
            chat.insert("continue_final_message".into(), json!(true));
        }
        if !self.template_variables.is_empty() {
            let variables = self.template_variables.clone();
            chat.insert("chat_template_kwargs".into(), variables.into());
        }
        Value::Object(chat)
    }
}
