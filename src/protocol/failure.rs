//! Errors in the words of the protocols.

use serde_json::{Value, json};

use super::Protocol;
use crate::error::{Error, Kind};

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
    let fault = fault_of(error.kind());
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
            json!({"error": {"message": message, "type": kind, "param": null, "code": null}})
        }
    }
}
