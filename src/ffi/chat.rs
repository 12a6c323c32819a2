//! Chat templates.

use std::ffi::c_char;

use serde_json::Value;

use super::{
    guard, guard_plain, mlxb_error, mlxb_model, mlxb_status, owned_string, required, string, text,
    write_array,
};
use crate::chat::Chat;
use crate::error::{Error, Kind, Result};

/// Renders a conversation as the prompt that the model was trained on, with its own template.
///
/// @param request_json    A JSON object, NUL-terminated: "messages" (an array of objects with
///                        "role", "content", and "tool_calls" or "reasoning_content" where they
///                        apply), and optionally "tools", "documents", "add_generation_prompt"
///                        (true by default), "continue_final_message" (true to end the prompt
///                        inside the last message, for the model to continue it), "chat_template"
///                        (the name of one of several), and variables of the template, either
///                        beside these or in "chat_template_kwargs". "reasoning_effort" ("none",
///                        "low", "medium", "high", ...) is put in the words of the template, and
///                        into its switches for thinking that are not given.
/// @param prompt          The text, NUL-terminated; NULL on a failure. It holds the begin token
///                        where the template writes one; mlxb_generate does not add another.
///                        Control tokens that a message quotes are in it as they are: the ids of
///                        mlxb_chat_tokenize are the safe prompt.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT for NULL or malformed JSON; MLXB_INVALID_UTF8;
///         MLXB_TEMPLATE when the model has no template, or it does not compile or refuses the
///         conversation, with its own message.
///
/// Ownership: free `*prompt` with mlxb_string_free. Thread: any. Since 0.1.0.
///
/// # Safety
/// `model` is NULL or alive; `request_json` is NULL or NUL-terminated; `prompt` and `error` are
/// NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_chat_render(
    model: *const mlxb_model,
    request_json: *const c_char,
    prompt: *mut *mut c_char,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let out = super::out(prompt, std::ptr::null_mut(), "prompt")?;
            let model = &required(model, "model")?.model;
            let request = request(string(request_json, "request_json")?)?;
            *out = owned_string(model.chat_template()?.render(&request)?);
            Ok(())
        })
    }
}

/// Turns a conversation into the token ids of its prompt. Where a message or a tool quotes a
/// control token, the quote is encoded as plain text: nobody can end a turn from inside one.
///
/// @param request_json    As for mlxb_chat_render.
/// @param tokens          Room for `capacity` ids; may be NULL with capacity 0.
/// @param count           How many ids there are.
/// @param stable_count    How many of them, from the first, the prompt of the next turn begins
///                        with, whatever is answered and asked: a kv that holds no more than these
///                        serves it. May be NULL.
/// @return MLXB_OK; MLXB_BUFFER_TOO_SMALL, with both counts set; MLXB_MODEL_FORMAT when the
///         tokenizer fails; else as mlxb_chat_render.
///
/// Thread: any. Since 0.1.0.
///
/// # Safety
/// `model` is NULL or alive; `request_json` is NULL or NUL-terminated; `tokens` is writable for
/// `capacity` ids; `count`, `stable_count` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_chat_tokenize(
    model: *const mlxb_model,
    request_json: *const c_char,
    tokens: *mut u32,
    capacity: usize,
    count: *mut usize,
    stable_count: *mut usize,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            if !stable_count.is_null() {
                stable_count.write(0);
            }
            super::out(count, 0, "count")?;
            let model = &required(model, "model")?.model;
            let request = request(string(request_json, "request_json")?)?;
            let chat = model
                .chat_template()?
                .tokenize(model.tokenizer(), &request)?;
            if !stable_count.is_null() {
                stable_count.write(chat.stable_count);
            }
            write_array(&chat.ids, tokens, capacity, count)
        })
    }
}

/// A conversation that is put together message by message, for programs that write no JSON.
pub struct mlxb_chat(Chat);

/// Makes a conversation without messages. Never NULL, unless memory is exhausted.
///
/// Ownership: the caller's, until mlxb_chat_free. Thread: any. Since 0.1.0.
#[unsafe(no_mangle)]
pub extern "C" fn mlxb_chat_new() -> *mut mlxb_chat {
    guard_plain(std::ptr::null_mut(), || {
        Box::into_raw(Box::new(mlxb_chat(Chat::default())))
    })
}

/// Adds a message at the end.
///
/// @param role        "system", "user", "assistant" or another that the model's template knows.
/// @param text_ptr    UTF-8; may be NULL with length 0.
/// @param text_len    Its bytes.
/// @return MLXB_OK; MLXB_INVALID_UTF8; MLXB_INVALID_ARGUMENT for NULL or an empty role. After a
///         failure the conversation is as before.
///
/// Thread: any, but one at a time for a conversation. Since 0.1.0.
///
/// # Safety
/// `chat` is NULL or alive, with no other use at the same time; `role` is NULL or
/// NUL-terminated; `text_ptr` is readable for `text_len` bytes; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_chat_add(
    chat: *mut mlxb_chat,
    role: *const c_char,
    text_ptr: *const c_char,
    text_len: usize,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            required(chat, "chat")?;
            let role = string(role, "role")?;
            let text = text(text_ptr, text_len, "text")?;
            (*chat).0.add(role, text)
        })
    }
}

/// Gives the conversation as the JSON that mlxb_chat_render and mlxb_chat_tokenize take.
///
/// @param json    The text, NUL-terminated; NULL on a failure.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT for NULL.
///
/// Ownership: free `*json` with mlxb_string_free. Thread: any, but one at a time for a
/// conversation. Since 0.1.0.
///
/// # Safety
/// `chat` is NULL or alive; `json` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_chat_json(
    chat: *const mlxb_chat,
    json: *mut *mut c_char,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let out = super::out(json, std::ptr::null_mut(), "json")?;
            *out = owned_string(required(chat, "chat")?.0.json());
            Ok(())
        })
    }
}

/// Frees a conversation; NULL is ignored.
///
/// Ownership: consumes `chat`. Thread: any, but no other use of it at the same time. Since 0.1.0.
///
/// # Safety
/// `chat` is NULL or came from mlxb_chat_new and has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_chat_free(chat: *mut mlxb_chat) {
    if !chat.is_null() {
        // SAFETY: made by mlxb_chat_new with Box::into_raw, and the caller gives it up.
        guard_plain((), || drop(unsafe { Box::from_raw(chat) }));
    }
}

/// The request in a caller's JSON; an error shows none of it.
fn request(json: &str) -> Result<Value> {
    serde_json::from_str(json).map_err(|error| {
        Error::new(
            Kind::InvalidArgument,
            format!(
                "request_json is malformed at line {} column {}",
                error.line(),
                error.column()
            ),
        )
    })
}
