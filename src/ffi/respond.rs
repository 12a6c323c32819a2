//! The wire protocols of hosted models.

use std::ffi::{c_char, c_void};

use super::{
    guard, mlxb_cache, mlxb_cancel, mlxb_error, mlxb_flow, mlxb_model, mlxb_status, mlxb_str,
    owned_string, required, text,
};
use crate::{
    cancel::Flow,
    error::{Error, Kind, Result},
    generate::CacheUse,
    protocol::{OnWireEvent, Protocol, RespondOptions},
};

/// A wire protocol. New values may appear in later versions.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum mlxb_protocol {
    /// OpenAI's Responses.
    MLXB_PROTOCOL_RESPONSES = 1,
    /// OpenAI's Chat Completions.
    MLXB_PROTOCOL_CHAT_COMPLETIONS = 2,
    /// Anthropic's Messages.
    MLXB_PROTOCOL_MESSAGES = 3,
}

const CONTINUE: i32 = mlxb_flow::MLXB_CONTINUE as i32;

fn protocol_of(protocol: i32) -> Result<Protocol> {
    for (number, protocol_of_it) in [
        (mlxb_protocol::MLXB_PROTOCOL_RESPONSES, Protocol::Responses),
        (
            mlxb_protocol::MLXB_PROTOCOL_CHAT_COMPLETIONS,
            Protocol::ChatCompletions,
        ),
        (mlxb_protocol::MLXB_PROTOCOL_MESSAGES, Protocol::Messages),
    ] {
        if number as i32 == protocol {
            return Ok(protocol_of_it);
        }
    }
    Err(Error::new(
        Kind::InvalidArgument,
        format!("protocol is none of mlxb_protocol: {protocol}"),
    ))
}

/// Receives an event of a protocol, on the thread that made the call, one at a time: its name,
/// such as "response.created", and its JSON; both live for the call. A server for such clients
/// writes "event: ", the name, "data: " and the JSON, each on a line; in Chat Completions only
/// the data, and `data: [DONE]` at the end. Returns MLXB_CONTINUE, or MLXB_STOP to end. It may
/// call any function of the library; one that would wait for this very call returns MLXB_BUSY. It
/// must not throw or longjmp, nor free the handles that the call uses.
pub type mlxb_json_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, name: mlxb_str, json: mlxb_str) -> i32>;

/// Translates a request in the JSON of a protocol to that of mlxb_chat_render: messages, tools
/// and variables of the template. Sampling and everything else that is not for the template is
/// checked and left out.
///
/// @param protocol        One of mlxb_protocol.
/// @param request_json    The request's body.
/// @param request_len     Its bytes.
/// @param chat_json       The translation, NUL-terminated; NULL on a failure.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_INVALID_UTF8; MLXB_PROTOCOL naming the field that
///         is malformed or not supported.
///
/// Ownership: free `*chat_json` with mlxb_string_free. Thread: any. Since 0.1.0.
///
/// # Safety
/// `request_json` is NULL or valid for request_len bytes; `chat_json` and `error` are NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_protocol_to_chat(
    protocol: i32,
    request_json: *const c_char,
    request_len: usize,
    chat_json: *mut *mut c_char,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let out = super::out(chat_json, std::ptr::null_mut(), "chat_json")?;
            let protocol = protocol_of(protocol)?;
            let request = text(request_json, request_len, "request_json")?;
            *out = owned_string(protocol.to_chat(request)?.to_string());
            Ok(())
        })
    }
}

/// Answers a request in the JSON of a protocol, as a hosted model would: the prompt is made with
/// the model's own template, reasoning and tool calls are told from the text, and what comes back
/// has the protocol's form.
///
/// A field that the protocol knows and that is not done here (images, several answers, output in
/// a schema) is an error that names it, but for values that ask for what happens anyway. Fields
/// that the protocol does not have are ignored, but for these: top_k, min_p, min_tokens_to_keep,
/// xtc_probability, xtc_threshold, logit_bias, repetition_penalty, presence_penalty and
/// frequency_penalty, each with its _context_size, seed, and chat_template_kwargs, an object of
/// variables for the template. Whether the request asks for a stream changes nothing: `on_event`
/// decides.
///
/// A conversation of Responses is kept by the cache, in memory, for an hour, up to 32 MiB of them,
/// so that previous_response_id continues it, and an item_reference stands for any of its items.
///
/// @param model              The model. The request's name of one is repeated in the answer.
/// @param cache              Where states and conversations are kept; NULL to keep neither.
/// @param cache_namespace    Sets what is kept apart from that of others; NULL for none.
/// @param protocol           One of mlxb_protocol.
/// @param request_json       The request's body.
/// @param request_len        Its bytes.
/// @param cancel             Ends the answer as if it had been cut, with the events that belong
///                           to an end. May be NULL.
/// @param on_event           Told what a client that streams is told; may be NULL.
/// @param user_data          Passed to on_event.
/// @param response_json      The answer as one object, NUL-terminated; NULL on a failure. It says
///                           what the events say. May be NULL.
/// @return MLXB_OK, also when cancelled or stopped. Before any event: MLXB_INVALID_ARGUMENT,
///         MLXB_INVALID_UTF8; MLXB_PROTOCOL naming the field that is malformed or not supported;
///         MLXB_UNSUPPORTED for an adapter, when a tool must be called where the model's family
///         has no mark for calls, and in a forked process; MLXB_TEMPLATE when the model has no
///         template or it refuses the conversation; MLXB_MODEL_FORMAT when the tokenizer fails;
///         MLXB_CONTEXT_FULL; MLXB_POISONED. Also after events, of which the last then tells of
///         the failure: MLXB_PROTOCOL when the model does not call the tool that it must;
///         MLXB_OVER_BUDGET; MLXB_BACKEND; MLXB_PANIC; MLXB_CANCELLED when the process exits
///         meanwhile. Unless an argument is to blame, the error's detail is what a hosted model
///         would answer instead, as JSON.
///
/// Ownership: free `*response_json` with mlxb_string_free. Thread: any; several answers take
/// turns. Callbacks run on the calling thread. Since 0.1.0.
///
/// # Safety
/// `model`, `cache` and `cancel` are NULL or alive; `cache_namespace` is NULL or NUL-terminated;
/// `request_json` is NULL or valid for request_len bytes; `on_event` may be called with
/// `user_data`; `response_json` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_respond(
    model: *const mlxb_model,
    cache: *const mlxb_cache,
    cache_namespace: *const c_char,
    protocol: i32,
    request_json: *const c_char,
    request_len: usize,
    cancel: *const mlxb_cancel,
    on_event: mlxb_json_fn,
    user_data: *mut c_void,
    response_json: *mut *mut c_char,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            if !response_json.is_null() {
                response_json.write(std::ptr::null_mut());
            }
            let model = required(model, "model")?.model.clone();
            let namespace = super::cache::namespace(cache_namespace)?;
            let protocol = protocol_of(protocol)?;
            let request = text(request_json, request_len, "request_json")?;
            let options = RespondOptions {
                cache: cache.as_ref().map(|cache| CacheUse {
                    cache: cache.0.clone(),
                    namespace: namespace.to_owned(),
                }),
                cancel: cancel.as_ref().map(|cancel| cancel.0.clone()),
            };
            let mut tell = on_event.map(|on_event| {
                // SAFETY: the caller's promise.
                move |name: &str, json: &str| match on_event(user_data, name.into(), json.into()) {
                    CONTINUE => Flow::Continue,
                    _ => Flow::Stop,
                }
            });
            let tell = tell.as_mut().map(|tell| tell as &mut OnWireEvent<'_>);
            let response = model.respond(protocol, request, &options, tell)?;
            if !response_json.is_null() {
                response_json.write(owned_string(response));
            }
            Ok(())
        })
    }
}
