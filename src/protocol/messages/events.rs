//! An answer as the stream of Messages, and as its sum.

use serde_json::{Value, json};

use crate::{
    error::Error,
    protocol::{
        Protocol, failure,
        output::{Encoder, Ending, Envelope, Part, Usage, WireEvent},
    },
};

/// Makes the events.
pub(crate) struct Events {
    envelope: Envelope,
    id: String,
    /// The blocks that have begun.
    content: Vec<Block>,
    /// Whether the last of them goes on.
    is_open: bool,
}

enum Block {
    Thinking { text: String, signature: String },
    Text(String),
    ToolUse(Value),
}

impl Block {
    fn to_json(&self) -> Value {
        match self {
            Self::Thinking { text, signature } => {
                json!({"type": "thinking", "thinking": text, "signature": signature})
            }
            Self::Text(text) => json!({"type": "text", "text": text, "citations": null}),
            Self::ToolUse(block) => block.clone(),
        }
    }
}

impl Events {
    /// Nothing is told yet.
    pub(crate) fn new(mut envelope: Envelope) -> Self {
        Self {
            id: envelope.ids.next("msg_"),
            envelope,
            content: Vec::new(),
            is_open: false,
        }
    }

    fn message(&self, stop_reason: Value, stop_sequence: Value, usage: Value) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.envelope.model,
            "content": self.content.iter().map(Block::to_json).collect::<Vec<_>>(),
            "stop_reason": stop_reason,
            "stop_sequence": stop_sequence,
            "usage": usage,
        })
    }

    /// Begins a block, after the end of the one before it.
    fn open(&mut self, block: Block, events: &mut Vec<WireEvent>) {
        self.close(events);
        let start = match &block {
            Block::ToolUse(whole) => {
                let mut start = whole.clone();
                start["input"] = json!({});
                start
            }
            other => other.to_json(),
        };
        events.push(event(
            "content_block_start",
            json!({"index": self.content.len(), "content_block": start}),
        ));
        self.content.push(block);
        self.is_open = true;
    }

    fn delta(&self, delta: Value, events: &mut Vec<WireEvent>) {
        let index = self.content.len() - 1;
        events.push(event(
            "content_block_delta",
            json!({"index": index, "delta": delta}),
        ));
    }

    fn close(&mut self, events: &mut Vec<WireEvent>) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        if let Some(Block::Thinking { signature, .. }) = self.content.last_mut() {
            // Opaque to clients, who hand it back. There is nothing to verify on one machine.
            *signature = self.envelope.ids.next("sig_");
            let delta = json!({"type": "signature_delta", "signature": signature});
            self.delta(delta, events);
        }
        let index = self.content.len() - 1;
        events.push(event("content_block_stop", json!({"index": index})));
    }

    fn stop_reason(&self, ending: &Ending) -> (&'static str, Value) {
        let calls = |block: &Block| matches!(block, Block::ToolUse(_));
        match ending {
            Ending::Complete if self.content.iter().any(calls) => ("tool_use", Value::Null),
            Ending::Complete => ("end_turn", Value::Null),
            Ending::StopString(text) => ("stop_sequence", json!(text)),
            Ending::ContextFull => ("model_context_window_exceeded", Value::Null),
            // The protocol has no word for an answer that its client broke off: it is cut.
            Ending::MaxTokens | Ending::Cancelled => ("max_tokens", Value::Null),
        }
    }
}

fn event(name: &'static str, mut data: Value) -> WireEvent {
    if let Value::Object(fields) = &mut data {
        fields.shift_insert(0, "type".into(), json!(name));
    }
    WireEvent { name, data }
}

fn usage_to_json(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.input - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
    })
}

impl Encoder for Events {
    fn begin(&mut self, prompt_tokens: usize, events: &mut Vec<WireEvent>) {
        let usage = Usage {
            input: prompt_tokens,
            ..Usage::default()
        };
        let message = self.message(Value::Null, Value::Null, usage_to_json(usage));
        events.push(event("message_start", json!({"message": message})));
    }

    fn part(&mut self, part: Part, events: &mut Vec<WireEvent>) {
        match part {
            Part::Reasoning(more) => {
                if !matches!(self.content.last(), Some(Block::Thinking { .. }) if self.is_open) {
                    let (text, signature) = (String::new(), String::new());
                    self.open(Block::Thinking { text, signature }, events);
                }
                if let Some(Block::Thinking { text, .. }) = self.content.last_mut() {
                    *text += &more;
                }
                self.delta(json!({"type": "thinking_delta", "thinking": more}), events);
            }
            Part::Text(more, _) => {
                if !matches!(self.content.last(), Some(Block::Text(_)) if self.is_open) {
                    self.open(Block::Text(String::new()), events);
                }
                if let Some(Block::Text(text)) = self.content.last_mut() {
                    *text += &more;
                }
                self.delta(json!({"type": "text_delta", "text": more}), events);
            }
            Part::ToolCall { name, arguments } => {
                let arguments = Value::Object(arguments);
                let partial_json = arguments.to_string();
                let block = json!({
                    "type": "tool_use",
                    "id": self.envelope.ids.next("toolu_"),
                    "name": name,
                    "input": arguments,
                });
                self.open(Block::ToolUse(block), events);
                let delta = json!({"type": "input_json_delta", "partial_json": partial_json});
                self.delta(delta, events);
                self.close(events);
            }
        }
    }

    fn end(&mut self, ending: &Ending, usage: Usage, events: &mut Vec<WireEvent>) -> Value {
        self.close(events);
        let (reason, sequence) = self.stop_reason(ending);
        let usage = usage_to_json(usage);
        events.push(event(
            "message_delta",
            json!({
                "delta": {"stop_reason": reason, "stop_sequence": sequence},
                "usage": usage,
            }),
        ));
        events.push(event("message_stop", json!({})));
        self.message(json!(reason), sequence, usage)
    }

    fn fail(&mut self, error: &Error, events: &mut Vec<WireEvent>) {
        events.push(WireEvent {
            name: "error",
            data: failure::body(Protocol::Messages, error),
        });
    }
}
