//! The KV state of a token sequence.

use std::sync::Arc;

use super::{guard, guard_plain, mlxb_error, mlxb_model, mlxb_status, out, required, write_array};
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
