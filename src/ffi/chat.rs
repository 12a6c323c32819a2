//! Chat templates.

use std::ffi::c_char;

use super::{guard, mlxb_error, mlxb_model, mlxb_status, owned_string, required, string};
use crate::error::{Error, Kind};

/// Renders a conversation as the prompt that the model was trained on, with its own template.
///
/// @param request_json    A JSON object: "messages" (an array of objects with "role" and
///                        "content"), and optionally "tools", "add_generation_prompt" (true by
///                        default) and any variable of the template.
/// @param prompt          The text, NUL-terminated; NULL on a failure. It holds the begin token
///                        where the template writes one; mlxb_generate does not add another.
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
            let request =
                serde_json::from_str(string(request_json, "request_json")?).map_err(|error| {
                    Error::new(
                        Kind::InvalidArgument,
                        format!(
                            "request_json is malformed at line {} column {}",
                            error.line(),
                            error.column()
                        ),
                    )
                })?;
            *out = owned_string(model.chat_template()?.render(&request)?);
            Ok(())
        })
    }
}
