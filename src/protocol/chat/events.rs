//! An answer as chunks of Chat Completions, and as their sum.

use serde_json::{Map, Value, json};

use super::request::Request;
use crate::{
    error::Error,
    protocol::{
        Protocol, failure,
        output::{Encoder, Ending, Envelope, Part, Usage, WireEvent},
    },
};

/// What chunks are called; the protocol itself gives them no name.
const CHUNK: &str = "chat.completion.chunk";

/// Makes the chunks.
pub(crate) struct Events {
    envelope: Envelope,
    id: String,
    includes_usage: bool,
    text: String,
    reasoning: String,
    tool_calls: Vec<Value>,
    /// Of the tokens of the text, where they are asked for.
    logprobs: Option<Vec<Value>>,
}

impl Events {
    /// Nothing is told yet.
    pub(crate) fn new(mut envelope: Envelope, request: &Request) -> Self {
        Self {
            id: envelope.ids.next("chatcmpl-"),
            envelope,
            includes_usage: request.includes_usage,
            text: String::new(),
            reasoning: String::new(),
            tool_calls: Vec::new(),
            logprobs: request.turn.logprobs.map(|_| Vec::new()),
        }
    }

    fn object(&self, kind: &str) -> Map<String, Value> {
        [
            ("id", json!(self.id)),
            ("object", json!(kind)),
            ("created", json!(self.envelope.created)),
            ("model", json!(self.envelope.model)),
            ("system_fingerprint", Value::Null),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into_iter()
        .collect()
    }

    fn chunk(&self, choices: Value, usage: Value) -> WireEvent {
        let mut chunk = self.object(CHUNK);
        chunk.insert("choices".into(), choices);
        if self.includes_usage {
            chunk.insert("usage".into(), usage);
        }
        WireEvent {
            name: CHUNK,
            data: Value::Object(chunk),
        }
    }

    fn delta(&self, delta: Value, logprobs: Value, finish_reason: Value) -> WireEvent {
        let choice = json!({
            "index": 0,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        });
        self.chunk(json!([choice]), Value::Null)
    }

    fn finish_reason(&self, ending: &Ending) -> &'static str {
        match ending {
            // To a stop string as to the model's own end: what was called is to be run.
            Ending::Complete | Ending::StopString(_) if !self.tool_calls.is_empty() => "tool_calls",
            Ending::Complete | Ending::StopString(_) => "stop",
            // The protocol has no word for an answer that its client broke off: it is cut.
            Ending::MaxTokens | Ending::ContextFull | Ending::Cancelled => "length",
        }
    }

    fn message(&self) -> Value {
        let mut message = json!({"role": "assistant", "content": self.text, "refusal": null});
        if !self.reasoning.is_empty() {
            message["reasoning_content"] = json!(self.reasoning);
        }
        if !self.tool_calls.is_empty() {
            message["tool_calls"] = json!(self.tool_calls);
        }
        message
    }
}

fn logprobs_of_content(content: Vec<Value>) -> Value {
    json!({"content": content, "refusal": null})
}

impl Encoder for Events {
    fn begin(&mut self, _: usize, events: &mut Vec<WireEvent>) {
        let delta = json!({"role": "assistant", "content": "", "refusal": null});
        events.push(self.delta(delta, Value::Null, Value::Null));
    }

    fn part(&mut self, part: Part, events: &mut Vec<WireEvent>) {
        let (delta, logprobs) = match part {
            Part::Reasoning(text) => {
                self.reasoning += &text;
                (json!({"reasoning_content": text}), Value::Null)
            }
            Part::Text(text, tokens) => {
                self.text += &text;
                let logprobs = match &mut self.logprobs {
                    None => Value::Null,
                    Some(all) => {
                        let tokens: Vec<Value> = tokens.iter().map(|t| t.to_json()).collect();
                        all.extend_from_slice(&tokens);
                        logprobs_of_content(tokens)
                    }
                };
                (json!({"content": text}), logprobs)
            }
            Part::ToolCall { name, arguments } => {
                let mut call = json!({
                    "id": self.envelope.ids.next("call_"),
                    "type": "function",
                    "function": {"name": name, "arguments": Value::Object(arguments).to_string()},
                });
                let index = self.tool_calls.len();
                self.tool_calls.push(call.clone());
                call["index"] = json!(index);
                (json!({"tool_calls": [call]}), Value::Null)
            }
        };
        events.push(self.delta(delta, logprobs, Value::Null));
    }

    fn end(&mut self, ending: &Ending, usage: Usage, events: &mut Vec<WireEvent>) -> Value {
        let finish_reason = self.finish_reason(ending);
        events.push(self.delta(json!({}), Value::Null, json!(finish_reason)));
        let usage = json!({
            "prompt_tokens": usage.input,
            "completion_tokens": usage.output,
            "total_tokens": usage.input + usage.output,
            "prompt_tokens_details": {"cached_tokens": usage.cached},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
        });
        if self.includes_usage {
            events.push(self.chunk(json!([]), usage.clone()));
        }
        let logprobs = self.logprobs.take().map(logprobs_of_content);
        let mut whole = self.object("chat.completion");
        let choice = json!({
            "index": 0,
            "message": self.message(),
            "logprobs": logprobs,
            "finish_reason": finish_reason,
        });
        whole.insert("choices".into(), json!([choice]));
        whole.insert("usage".into(), usage);
        Value::Object(whole)
    }

    fn fail(&mut self, error: &Error, events: &mut Vec<WireEvent>) {
        events.push(WireEvent {
            name: "error",
            data: failure::body(Protocol::ChatCompletions, error),
        });
    }
}
