//! `mlxb_cancel`.

use super::guard_plain;
use crate::cancel::Cancel;

/// Asks calls to stop, from any thread, before or while they run. It stays requested: make a
/// new one for the next call. A call that was given one keeps what it needs of it, so it may be
/// freed at any time.
pub struct mlxb_cancel(pub(crate) Cancel);

/// Makes a cancel object. Never NULL, unless memory is exhausted.
///
/// Ownership: the caller's, until mlxb_cancel_free. Thread: any. Since 0.1.0.
#[unsafe(no_mangle)]
pub extern "C" fn mlxb_cancel_new() -> *mut mlxb_cancel {
    guard_plain(std::ptr::null_mut(), || {
        Box::into_raw(Box::new(mlxb_cancel(Cancel::new())))
    })
}

/// Asks the calls that were given `cancel` to stop: a generation ends with
/// MLXB_FINISH_CANCELLED before its next step, mlxb_respond with what there is of an answer, other
/// calls with MLXB_CANCELLED. NULL is ignored.
///
/// Thread: any, at any time, signal handlers included. Since 0.1.0.
///
/// # Safety
/// `cancel` is NULL or came from mlxb_cancel_new and has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_cancel_request(cancel: *const mlxb_cancel) {
    // SAFETY: the caller's promise.
    if let Some(cancel) = unsafe { cancel.as_ref() } {
        cancel.0.request();
    }
}

/// Frees a cancel object; NULL is ignored.
///
/// Ownership: consumes `cancel`; calls that were given it go on and can no longer be cancelled.
/// Thread: any, but no other use of it at the same time. Since 0.1.0.
///
/// # Safety
/// `cancel` is NULL or came from mlxb_cancel_new and has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_cancel_free(cancel: *mut mlxb_cancel) {
    if !cancel.is_null() {
        // SAFETY: made by mlxb_cancel_new with Box::into_raw, and the caller gives it up.
        guard_plain((), || drop(unsafe { Box::from_raw(cancel) }));
    }
}
