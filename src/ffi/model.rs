//! Models: loading, sharing, and their text functions.

use std::{
    ffi::{CString, c_char, c_void},
    sync::Arc,
};

use super::{
    Callback, SizedStruct, array, guard, guard_plain, init_struct, mlxb_cancel, mlxb_error,
    mlxb_event, mlxb_event_fn, mlxb_event_kind, mlxb_status, out, owned_string, path, read_struct,
    required, text, write_array, write_struct,
};
use crate::{
    error::{Error, Kind, Result},
    model::{DeviceKind, LoadOptions, Model},
};

/// A loaded model. Shared: it is freed when the last reference is released and the last kv made
/// from it is freed. All its functions may be called from several threads at once.
pub struct mlxb_model {
    pub(crate) model: Model,
    model_type: CString,
}

/// Where a model computes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum mlxb_device {
    /// The GPU where there is one that MLX can use, else the CPU.
    MLXB_DEVICE_DEFAULT = 0,
    /// The CPU.
    MLXB_DEVICE_CPU = 1,
}

/// How to load a model. Prepare it with mlxb_model_options_init, then set what you need.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mlxb_model_options {
    /// sizeof(mlxb_model_options).
    pub struct_size: usize,
    /// One of mlxb_device.
    pub device: i32,
    /// Tokens of prompt and answer together to allow; -1: as many as the model was made for.
    pub context_length: i64,
    /// Told MLXB_EVENT_LOAD before each tensor; MLXB_STOP ends with MLXB_CANCELLED. May be NULL.
    pub on_progress: mlxb_event_fn,
    /// Passed to on_progress.
    pub user_data: *mut c_void,
    /// Looked at before each tensor. May be NULL.
    pub cancel: *const mlxb_cancel,
}

// SAFETY: repr(C), struct_size first, numbers, pointers and a nullable function pointer.
unsafe impl SizedStruct for mlxb_model_options {
    fn unset() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            device: mlxb_device::MLXB_DEVICE_DEFAULT as i32,
            context_length: -1,
            on_progress: None,
            user_data: std::ptr::null_mut(),
            cancel: std::ptr::null(),
        }
    }
}

/// What a model is. Set struct_size, the library fills in the rest.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mlxb_model_info {
    /// sizeof(mlxb_model_info).
    pub struct_size: usize,
    /// The architecture's name, such as "llama"; lives as long as the model.
    pub model_type: *const c_char,
    /// Tokens of prompt and answer together that fit.
    pub context_length: u64,
    /// Every token id is below.
    pub vocab_size: u32,
    /// Blocks.
    pub layer_count: u32,
    /// Width of the hidden states.
    pub hidden_size: u32,
    /// One of mlxb_device: where it computes.
    pub device: i32,
    /// Bytes of all weights.
    pub weight_bytes: u64,
    /// Bytes of KV state that one token takes, over all layers.
    pub kv_bytes_per_token: u64,
}

// SAFETY: repr(C), struct_size first, numbers and a pointer.
unsafe impl SizedStruct for mlxb_model_info {
    fn unset() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            model_type: std::ptr::null(),
            context_length: 0,
            vocab_size: 0,
            layer_count: 0,
            hidden_size: 0,
            device: 0,
            weight_bytes: 0,
            kv_bytes_per_token: 0,
        }
    }
}

/// Sets all fields to "unset".
///
/// @param struct_size    sizeof(mlxb_model_options).
///
/// Thread: any. Since 0.1.0.
///
/// # Safety
/// `options` is NULL or writable for `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_model_options_init(
    options: *mut mlxb_model_options,
    struct_size: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { init_struct(options, struct_size) };
}

/// Loads the model in a folder: a snapshot of the Hugging Face hub, or any folder with
/// config.json, safetensors files and tokenizer.json. Nothing in the folder is executed.
///
/// @param snapshot_dir    The folder.
/// @param options         NULL for the defaults.
/// @param out             The model; NULL on a failure.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT, MLXB_INVALID_UTF8 or MLXB_VERSION_MISMATCH for the
///         arguments; MLXB_NOT_FOUND without such a folder; MLXB_MODEL_FORMAT or MLXB_CORRUPT for
///         one that is incomplete or contradicts itself; MLXB_UNSUPPORTED for an architecture or a
///         setting that the library does not have, or in a forked process; MLXB_IO;
///         MLXB_OUT_OF_MEMORY; MLXB_OVER_BUDGET; MLXB_CANCELLED; MLXB_BACKEND. The message
///         names the file, the tensor or the setting.
///
/// Ownership: release `*out` with mlxb_model_release.
/// Thread: any; models can load and generate at the same time. Since 0.1.0.
///
/// # Safety
/// `snapshot_dir` is NULL or NUL-terminated; `options` is NULL or a struct of struct_size bytes
/// whose cancel is alive; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_model_load(
    snapshot_dir: *const c_char,
    options: *const mlxb_model_options,
    out: *mut *mut mlxb_model,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let out = super::out(out, std::ptr::null_mut(), "out")?;
            let dir = path(snapshot_dir, "snapshot_dir")?;
            let options = if options.is_null() {
                SizedStruct::unset()
            } else {
                read_struct(options, "options")?
            };
            let model = load(dir, &options)?;
            let model_type = CString::new(model.info().model_type.as_str())
                .map_err(|_| Error::new(Kind::ModelFormat, "model_type holds a NUL"))?;
            let handle = Arc::new(mlxb_model { model, model_type });
            *out = Arc::into_raw(handle).cast_mut();
            Ok(())
        })
    }
}

/// # Safety
/// The pointers in `options` are valid.
unsafe fn load(dir: &std::path::Path, options: &mlxb_model_options) -> Result<Model> {
    let device = match options.device {
        0 => DeviceKind::Default,
        1 => DeviceKind::Cpu,
        other => {
            return Err(Error::new(
                Kind::InvalidArgument,
                format!("options.device is no device: {other}"),
            ));
        }
    };
    let context_length = match options.context_length {
        -1 => None,
        length => match usize::try_from(length) {
            Ok(length) if length > 0 => Some(length),
            _ => {
                return Err(Error::new(
                    Kind::InvalidArgument,
                    format!("options.context_length must be positive or -1: {length}"),
                ));
            }
        },
    };
    // SAFETY: the caller's promise.
    let callback = unsafe { Callback::new(options.on_progress, options.user_data) };
    // SAFETY: the caller's promise.
    let caller_cancel = unsafe { options.cancel.as_ref() }.map(|cancel| cancel.0.clone());
    let mut on_progress = |done, total| {
        callback.tell(&mlxb_event {
            done,
            total,
            ..mlxb_event::new(mlxb_event_kind::MLXB_EVENT_LOAD)
        })
    };
    let options = LoadOptions {
        device,
        context_length,
        on_progress: Some(&mut on_progress),
        cancel: caller_cancel,
    };
    Model::load(dir, options)
}

/// Adds a reference to a model, to be released with mlxb_model_release.
///
/// @return `model`; NULL for NULL.
///
/// Thread: any. Since 0.1.0.
///
/// # Safety
/// `model` is NULL or a model with a reference that has not been released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_model_retain(model: *mut mlxb_model) -> *mut mlxb_model {
    if !model.is_null() {
        // SAFETY: made by Arc::into_raw, and a reference is alive.
        unsafe { Arc::increment_strong_count(model.cast_const()) };
    }
    model
}

/// Gives a reference to a model up; NULL is ignored. Its memory is freed after the last one, as
/// soon as the engine comes to it; this call does not wait.
///
/// Ownership: consumes one reference. Thread: any. Since 0.1.0.
///
/// # Safety
/// `model` is NULL or a model with a reference that has not been released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_model_release(model: *mut mlxb_model) {
    if !model.is_null() {
        // SAFETY: made by Arc::into_raw, and the caller gives this reference up.
        guard_plain((), || drop(unsafe { Arc::from_raw(model.cast_const()) }));
    }
}

/// Tells what a model is.
///
/// @param out    Filled in; its struct_size says how much of it.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT for NULL or a wrong struct_size, which leave `out`
///         unchanged.
///
/// Ownership: the strings live as long as the model. Thread: any. Since 0.1.0.
///
/// # Safety
/// `model` is NULL or alive; `out` is NULL or a struct of struct_size bytes; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_model_info_get(
    model: *const mlxb_model,
    out: *mut mlxb_model_info,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let model = required(model, "model")?;
            let info = model.model.info();
            let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
            let filled = mlxb_model_info {
                model_type: model.model_type.as_ptr(),
                context_length: info.context_length as u64,
                vocab_size: number(info.vocab_size),
                layer_count: number(info.layer_count),
                hidden_size: number(info.hidden_size),
                device: match info.device {
                    DeviceKind::Default => mlxb_device::MLXB_DEVICE_DEFAULT,
                    DeviceKind::Cpu => mlxb_device::MLXB_DEVICE_CPU,
                } as i32,
                weight_bytes: info.weight_bytes,
                kv_bytes_per_token: info.kv_bytes_per_token,
                ..SizedStruct::unset()
            };
            write_struct(out, filled, "out")
        })
    }
}

/// The ids that end an answer, ascending.
///
/// @param tokens      Room for `capacity` ids; may be NULL with capacity 0.
/// @param count       How many there are.
/// @return MLXB_OK; MLXB_BUFFER_TOO_SMALL, with `count` set; MLXB_INVALID_ARGUMENT.
///
/// Thread: any. Since 0.1.0.
///
/// # Safety
/// `model` is NULL or alive; `tokens` is writable for `capacity` ids; `count` and `error` are
/// NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_model_eos_tokens(
    model: *const mlxb_model,
    tokens: *mut u32,
    capacity: usize,
    count: *mut usize,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            out(count, 0, "count")?;
            let eos = &required(model, "model")?.model.info().eos_tokens;
            write_array(eos, tokens, capacity, count)
        })
    }
}

/// Turns text into token ids. Special tokens written out in the text become their ids.
///
/// @param text_ptr       UTF-8; may be NULL with length 0.
/// @param text_len       Its bytes.
/// @param add_special    Whether to add what the tokenizer adds by itself, such as a begin token.
/// @param tokens         Room for `capacity` ids; may be NULL with capacity 0.
/// @param count          How many ids there are.
/// @return MLXB_OK; MLXB_BUFFER_TOO_SMALL, with `count` set; MLXB_INVALID_UTF8;
///         MLXB_INVALID_ARGUMENT; MLXB_MODEL_FORMAT when the tokenizer fails.
///
/// Thread: any. Since 0.1.0.
///
/// # Safety
/// `model` is NULL or alive; `text_ptr` is readable for `text_len` bytes; `tokens` is writable
/// for `capacity` ids; `count` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_model_tokenize(
    model: *const mlxb_model,
    text_ptr: *const c_char,
    text_len: usize,
    add_special: bool,
    tokens: *mut u32,
    capacity: usize,
    count: *mut usize,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            out(count, 0, "count")?;
            let model = required(model, "model")?;
            let text = text(text_ptr, text_len, "text")?;
            let ids = model.model.tokenizer().encode(text, add_special)?;
            write_array(&ids, tokens, capacity, count)
        })
    }
}

/// Turns token ids into text.
///
/// @param tokens          The ids; may be NULL with count 0.
/// @param skip_special    Whether to leave special tokens out.
/// @param text            The text, NUL-terminated; NULL on a failure.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT for NULL or an id that the model does not have.
///
/// Ownership: free `*text` with mlxb_string_free. Thread: any. Since 0.1.0.
///
/// # Safety
/// `model` is NULL or alive; `tokens` is readable for `count` ids; `text` and `error` are NULL
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_model_detokenize(
    model: *const mlxb_model,
    tokens: *const u32,
    count: usize,
    skip_special: bool,
    text: *mut *mut c_char,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let out = out(text, std::ptr::null_mut(), "text")?;
            let model = required(model, "model")?;
            let tokens = array(tokens, count, "tokens")?;
            *out = owned_string(model.model.detokenize(tokens, skip_special)?);
            Ok(())
        })
    }
}
