//! The KV state of a token sequence.

use std::{ffi::c_char, sync::Arc};

use super::{
    array, guard, guard_plain, mlxb_error, mlxb_model, mlxb_status, out, required, write_array,
};
use crate::model::Kv;

/// The KV state of one token sequence: a generation that is given one continues from it. It
/// keeps its model alive. Belongs to one thread at a time; while a generation uses it, other
/// calls answer MLXB_BUSY.
pub struct mlxb_kv(pub(crate) Arc<Kv>);

/// Makes the state of no tokens.
///
/// @param out    The state; NULL on a failure.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT.
///
/// Ownership: free `*out` with mlxb_kv_free. Thread: any. Since 0.1.0.
///
/// # Safety
/// `model` is NULL or alive; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_kv_new(
    model: *const mlxb_model,
    out: *mut *mut mlxb_kv,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let out = super::out(out, std::ptr::null_mut(), "out")?;
            let model = &required(model, "model")?.model;
            *out = Box::into_raw(Box::new(mlxb_kv(Arc::new(Kv::new(model)))));
            Ok(())
        })
    }
}

/// Makes a second state of the same tokens. The two share memory until one of them grows.
///
/// @param out    The new state; NULL on a failure.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_BUSY while a generation uses `kv`;
///         MLXB_POISONED.
///
/// Ownership: free `*out` with mlxb_kv_free. Thread: one at a time per kv; never waits for the
/// engine. Since 0.1.0.
///
/// # Safety
/// `kv` is NULL or alive; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_kv_fork(
    kv: *const mlxb_kv,
    out: *mut *mut mlxb_kv,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let out = super::out(out, std::ptr::null_mut(), "out")?;
            let fork = required(kv, "kv")?.0.fork()?;
            *out = Box::into_raw(Box::new(mlxb_kv(Arc::new(fork))));
            Ok(())
        })
    }
}

/// Goes back to the first `token_count` tokens.
///
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT when the state has fewer tokens; MLXB_BUSY while a
///         generation uses it; MLXB_POISONED. On a failure it is unchanged.
///
/// Thread: one at a time per kv; never waits for the engine. Since 0.1.0.
///
/// # Safety
/// `kv` is NULL or alive; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_kv_trim(
    kv: *mut mlxb_kv,
    token_count: usize,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe { guard(error, || required(kv, "kv")?.0.trim(token_count)) }
}

/// The tokens that the state has seen.
///
/// @param tokens    Room for `capacity` ids; may be NULL with capacity 0.
/// @param count     How many there are.
/// @return MLXB_OK; MLXB_BUFFER_TOO_SMALL, with `count` set; MLXB_INVALID_ARGUMENT; MLXB_BUSY
///         while a generation uses the state; MLXB_POISONED.
///
/// Thread: one at a time per kv; never waits for the engine. Since 0.1.0.
///
/// # Safety
/// `kv` is NULL or alive; `tokens` is writable for `capacity` ids; `count` and `error` are NULL
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_kv_tokens(
    kv: *const mlxb_kv,
    tokens: *mut u32,
    capacity: usize,
    count: *mut usize,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            out(count, 0, "count")?;
            write_array(&required(kv, "kv")?.0.tokens()?, tokens, capacity, count)
        })
    }
}

/// Bytes of a state's buffers, room to grow included. What forks share counts for each of them.
///
/// @param bytes    How many; 0 on a failure.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT; MLXB_BUSY while a generation uses the state;
///         MLXB_POISONED.
///
/// Thread: one at a time per kv; never waits for the engine. Since 0.1.0.
///
/// # Safety
/// `kv` is NULL or alive; `bytes` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_kv_bytes(
    kv: *const mlxb_kv,
    bytes: *mut u64,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let bytes = out(bytes, 0, "bytes")?;
            *bytes = required(kv, "kv")?.0.bytes()?;
            Ok(())
        })
    }
}

/// Frees a state; NULL is ignored. Never waits for the engine. A generation that uses it goes
/// on, and its state is freed with it.
///
/// Ownership: consumes `kv`. Thread: one at a time per kv. Since 0.1.0.
///
/// # Safety
/// `kv` is NULL or came from this library and has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_kv_free(kv: *mut mlxb_kv) {
    if !kv.is_null() {
        // SAFETY: made with Box::into_raw, and the caller gives it up.
        guard_plain((), || drop(unsafe { Box::from_raw(kv) }));
    }
}

/// Writes a state to a file that mlxb_kv_load and mlx-lm's load_prompt_cache read: safetensors, with
/// the tokens among its metadata. A file of that name is replaced once the new one is whole; only
/// its owner may read it.
///
/// @param path    The file.
/// @return MLXB_OK; MLXB_INVALID_ARGUMENT, also for a state without tokens; MLXB_INVALID_UTF8;
///         MLXB_BUSY while a generation uses the state; MLXB_POISONED; MLXB_NO_SPACE, MLXB_IO and
///         the like, with a file that was there unchanged; MLXB_UNSUPPORTED in a forked process.
///
/// Thread: one at a time per kv; waits for the engine and the disk. Since 0.1.0.
///
/// # Safety
/// `kv` is NULL or alive; `path` is NULL or NUL-terminated; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_kv_save(
    kv: *const mlxb_kv,
    path: *const c_char,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let kv = Arc::clone(&required(kv, "kv")?.0);
            kv.save(super::path(path, "path")?)
        })
    }
}

/// Reads a state from a file of mlxb_kv_save or of mlx-lm's save_prompt_cache. That the file was
/// made with this very model is for the caller to know; only its shapes are checked.
///
/// @param path      The file.
/// @param tokens    The tokens that the state is of, as many as the file has positions; NULL when
///                  the file says it, as those of mlxb_kv_save do.
/// @param count     Ids at `tokens`.
/// @param out       The state; NULL on a failure.
/// @return MLXB_OK; MLXB_NOT_FOUND and the like without such a file; MLXB_CORRUPT for one that
///         contradicts itself or does not fit the model; MLXB_UNSUPPORTED for layers of another
///         kind than keys and values of all positions, and in a forked process;
///         MLXB_INVALID_ARGUMENT, also for tokens that are not the file's, and for none when the
///         file says none; MLXB_INVALID_UTF8; MLXB_OVER_BUDGET.
///
/// Ownership: free `*out` with mlxb_kv_free. Thread: any; waits for the engine and the disk. Since
/// 0.1.0.
///
/// # Safety
/// `model` is NULL or alive; `path` is NULL or NUL-terminated; `tokens` is valid for `count` ids;
/// `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_kv_load(
    model: *const mlxb_model,
    path: *const c_char,
    tokens: *const u32,
    count: usize,
    out: *mut *mut mlxb_kv,
    error: *mut *mut mlxb_error,
) -> mlxb_status {
    // SAFETY: the caller's promise, for all pointers.
    unsafe {
        guard(error, || {
            let out = super::out(out, std::ptr::null_mut(), "out")?;
            let model = &required(model, "model")?.model;
            let path = super::path(path, "path")?;
            let tokens = match array(tokens, count, "tokens")? {
                [] => None,
                tokens => Some(tokens),
            };
            let kv = Kv::load(model, path, tokens)?;
            *out = Box::into_raw(Box::new(mlxb_kv(Arc::new(kv))));
            Ok(())
        })
    }
}
