//! What an answer consists of, before a protocol gives it its form.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::ids::Ids;
use crate::error::Error;

/// A part of an answer, as it comes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    /// More of the reasoning.
    Reasoning(String),
    /// More of the text, with the log-probabilities of its tokens where they were asked for.
    Text(String, Vec<TokenLogprob>),
    /// A whole tool call: the tool's name, and the arguments as a JSON object.
    ToolCall {
        name: String,
        arguments: serde_json::Map<String, Value>,
    },
}

/// A token with its log-probability.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TokenLogprob {
    pub(crate) bytes: Vec<u8>,
    pub(crate) logprob: f32,
    /// The most likely tokens in its place, best first.
    pub(crate) top: Vec<(Vec<u8>, f32)>,
}

impl TokenLogprob {
    /// As both of OpenAI's protocols write it.
    pub(super) fn to_json(&self) -> Value {
        let pair = |bytes: &[u8], logprob: f32| {
            json!({
                "token": String::from_utf8_lossy(bytes),
                "logprob": decimal(logprob),
                "bytes": bytes,
            })
        };
        let mut whole = pair(&self.bytes, self.logprob);
        let top = self.top.iter();
        whole["top_logprobs"] = top.map(|(bytes, logprob)| pair(bytes, *logprob)).collect();
        whole
    }
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The model ended it.
    Complete,
    /// A stop string appeared.
    StopString(String),
    /// `max_tokens` are used up.
    MaxTokens,
    /// The context is full.
    ContextFull,
    /// The caller ended it.
    Cancelled,
}

/// Tokens of a request and its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Of the prompt.
    pub(crate) input: usize,
    /// How many of these were not run again.
    pub(crate) cached: usize,
    /// Of the answer.
    pub(crate) output: usize,
    /// How many of these were reasoning.
    pub(crate) reasoning: usize,
}

/// What is known of an answer before it begins.
#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    pub(crate) ids: Ids,
    /// Seconds since 1970.
    pub(crate) created: u64,
    /// The name of the model.
    pub(crate) model: String,
    pub(crate) temperature: f32,
    pub(crate) top_p: f32,
}

/// A number as it is written shortest: 0.7, not the double that is nearest to the float.
pub(super) fn decimal(number: f32) -> Value {
    number
        .to_string()
        .parse::<f64>()
        .map_or(Value::Null, Value::from)
}

/// Seconds since 1970.
pub(crate) fn unix_time() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| now.as_secs())
}

/// An event as it goes to the client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WireEvent {
    pub(crate) name: &'static str,
    pub(crate) data: Value,
}

/// Gives an answer the form of a protocol. The events are made in the order of the calls:
/// `begin`, parts, and either `end` or `fail`. The final object holds what the events told.
pub(crate) trait Encoder {
    /// The answer begins, to a prompt of so many tokens.
    fn begin(&mut self, prompt_tokens: usize, events: &mut Vec<WireEvent>);

    /// It goes on.
    fn part(&mut self, part: Part, events: &mut Vec<WireEvent>);

    /// It has ended: its final object.
    fn end(&mut self, ending: &Ending, usage: Usage, events: &mut Vec<WireEvent>) -> Value;

    /// It broke off.
    fn fail(&mut self, error: &Error, events: &mut Vec<WireEvent>);

    /// The id by which a later request continues the conversation, and the answer's items, where
    /// the protocol has that.
    fn kept(&self) -> Option<(&str, &[Value])> {
        None
    }
}
