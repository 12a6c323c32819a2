//! The wire protocols of hosted models, in process: OpenAI Responses, OpenAI Chat Completions
//! and Anthropic Messages.
//!
//! A request in any of them becomes one [`ChatTurn`]; the parts of an answer become the events
//! of its protocol and, as their sum, its final object. Both directions are pure: no model is
//! involved. `Model::respond` puts a model in between.
//!
//! Every mistake in a request, and everything in it that is known but not done here, is an error
//! that names the field. A value that asks for what happens anyway is accepted, null is unset,
//! and fields that no protocol has are ignored.

mod chat;
mod conversation;
mod failure;
mod fields;
mod ids;
mod messages;
mod output;
mod respond;
mod responses;
mod sampling;
mod shared;
#[cfg(test)]
mod tests;
mod tools;
mod turn;

use serde_json::Value;

pub use self::respond::{OnWireEvent, RespondOptions};
use self::{
    output::{Encoder, Envelope},
    turn::ChatTurn,
};
use crate::{error::Result, generate::CacheUse};

/// A wire protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// OpenAI's Responses.
    Responses,
    /// OpenAI's Chat Completions.
    ChatCompletions,
    /// Anthropic's Messages.
    Messages,
}

impl Protocol {
    /// The chat that a request is about, as [`ChatTemplate::render`](crate::ChatTemplate::render)
    /// takes it: messages, tools and variables of the template.
    ///
    /// # Errors
    /// [`Kind::Protocol`](crate::Kind::Protocol) naming what is malformed or not supported.
    pub fn to_chat(self, request: &str) -> Result<Value> {
        Ok(Request::read(self, request, None)?.turn().to_chat())
    }
}

/// A request of one of the protocols.
#[derive(Debug)]
enum Request {
    Responses(Box<responses::Request>),
    ChatCompletions(chat::Request),
    Messages(messages::Request),
}

impl Request {
    fn read(protocol: Protocol, request: &str, cache: Option<&CacheUse>) -> Result<Self> {
        let request: Value = serde_json::from_str(request).map_err(|error| {
            fields::malformed(format!(
                "request is malformed json at line {} column {}",
                error.line(),
                error.column()
            ))
        })?;
        Ok(match protocol {
            Protocol::Responses => {
                Self::Responses(Box::new(responses::Request::read(&request, cache)?))
            }
            Protocol::ChatCompletions => Self::ChatCompletions(chat::Request::read(&request)?),
            Protocol::Messages => Self::Messages(messages::Request::read(&request)?),
        })
    }

    fn turn(&self) -> &ChatTurn {
        match self {
            Self::Responses(request) => &request.turn,
            Self::ChatCompletions(request) => &request.turn,
            Self::Messages(request) => &request.turn,
        }
    }

    fn encoder(&self, envelope: Envelope) -> Box<dyn Encoder> {
        match self {
            Self::Responses(request) => Box::new(responses::Events::new(envelope, request)),
            Self::ChatCompletions(request) => Box::new(chat::Events::new(envelope, request)),
            Self::Messages(_) => Box::new(messages::Events::new(envelope)),
        }
    }
}
