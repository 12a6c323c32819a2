//! Errors in the words of the protocols.

use serde_json::{Value, json};

use super::Protocol;
use crate::error::{Error, Kind};

/// What an error is about, beyond its message: it is kept as the error's source.
#[derive(Debug, thiserror::Error)]
pub(super) enum Cause {
    /// A field of the request.
    #[error("{}: {place}", mistake.code())]
    Field { place: String, mistake: Mistake },
    /// The model, which did not do what the request may ask of it.
    #[error("the model")]
    Model,
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// It must be there.
    Missing,
    /// It is of the wrong type.
    Type,
    /// It has a value that means nothing here.
    Value,
    /// It is known, but not done here at all.
    UnsupportedField,
    /// It is known, but what it asks for is not done here.
    UnsupportedValue,
    /// It names a response that is not kept.
    NoSuchResponse,
}

impl Mistake {
    /// The code that OpenAI's protocols have for it.
    fn code(self) -> &'static str {
        match self {
            Self::Missing => "missing_required_parameter",
            Self::Type => "invalid_type",
            Self::Value => "invalid_value",
            Self::UnsupportedField => "unsupported_parameter",
            Self::UnsupportedValue => "unsupported_value",
            Self::NoSuchResponse => "previous_response_not_found",
        }
    }
}

/// The code for a conversation that is too long, by which clients know to shorten it.
const CONTEXT_FULL: &str = "context_length_exceeded";

/// Who has to do something about an error.
enum Fault {
    Client,
    /// Too much was asked of the machine just now.
    Load,
    Library,
}

fn fault_of(kind: Kind) -> Fault {
    match kind {
        Kind::InvalidArgument
        | Kind::InvalidUtf8
        | Kind::NotFound
        | Kind::Ambiguous
        | Kind::Unsupported
        | Kind::Template
        | Kind::Grammar
        | Kind::ContextFull
        | Kind::Protocol => Fault::Client,
        Kind::Busy | Kind::OutOfMemory | Kind::OverBudget | Kind::NoSpace | Kind::Locked => {
            Fault::Load
        }
        Kind::Cancelled
        | Kind::BufferTooSmall
        | Kind::VersionMismatch
        | Kind::Io
        | Kind::Corrupt
        | Kind::ModelFormat
        | Kind::Backend
        | Kind::Panic
        | Kind::Poisoned => Fault::Library,
    }
}

/// The body with which a hosted model would answer.
pub(super) fn body(protocol: Protocol, error: &Error) -> Value {
    let message = error.message();
    let cause = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    let fault = match cause {
        Some(Cause::Model) => Fault::Library,
        Some(Cause::Field { .. }) | None => fault_of(error.kind()),
    };
    match protocol {
        Protocol::Messages => {
            let kind = match fault {
                Fault::Client => "invalid_request_error",
                Fault::Load => "overloaded_error",
                Fault::Library => "api_error",
            };
            json!({"type": "error", "error": {"type": kind, "message": message}})
        }
        Protocol::Responses | Protocol::ChatCompletions => {
            let kind = match fault {
                Fault::Client => "invalid_request_error",
                Fault::Load | Fault::Library => "server_error",
            };
            let conversation = match protocol {
                Protocol::Responses => "input",
                _ => "messages",
            };
            let (param, code) = match cause {
                Some(Cause::Field { place, mistake }) => {
                    (Some(place.as_str()), Some(mistake.code()))
                }
                _ if error.kind() == Kind::ContextFull => (Some(conversation), Some(CONTEXT_FULL)),
                _ => (None, None),
            };
            json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
        }
    }
}
