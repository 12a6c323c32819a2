//! `mlxb_error`, and the guard around every entry point.

use std::{
    ffi::{CString, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
};

use super::mlxb_status;
use crate::error::{Error, Kind, Result};

/// Why a call failed: a status, a one-line message and sometimes a longer detail.
/// Made by a call that fails with an `error` argument that is not NULL; freed by
/// mlxb_error_free. Belongs to one thread at a time.
pub struct mlxb_error {
    status: mlxb_status,
    message: CString,
    detail: Option<CString>,
}

impl From<Error> for mlxb_error {
    fn from(error: Error) -> Self {
        let text = |text: &str| {
            CString::new(text.replace('\0', " ")).expect("no NUL is left after the replacement")
        };
        Self {
            status: error.kind().into(),
            message: text(error.message()),
            detail: error.detail().map(text),
        }
    }
}

/// Runs the body of an entry point: sets `*error` to NULL, turns an error into a status and
/// an error object, and a panic into MLXB_PANIC. Nothing unwinds into C.
///
/// # Safety
/// `error` is NULL or valid for writing a pointer.
pub(crate) unsafe fn guard(
    error: *mut *mut mlxb_error,
    body: impl FnOnce() -> Result<()>,
) -> mlxb_status {
    // SAFETY: the caller's promise.
    if let Some(error) = unsafe { error.as_mut() } {
        *error = ptr::null_mut();
    }
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return mlxb_status::MLXB_OK,
        Ok(Err(failure)) => failure,
        // The payload may hold anything, prompt text included: it stays inside.
        Err(payload) => {
            // A payload whose destructor panics must not unwind into C either.
            std::mem::forget(payload);
            Error::new(Kind::Panic, "a bug in the library: a panic was caught")
        }
    };
    let status = failure.kind().into();
    // SAFETY: the caller's promise.
    if let Some(error) = unsafe { error.as_mut() } {
        *error = Box::into_raw(Box::new(failure.into()));
    }
    status
}

/// Runs the body of an entry point that cannot fail; `otherwise` is what a panic comes to.
pub(crate) fn guard_plain<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        std::mem::forget(payload);
        otherwise
    })
}

/// The status inside an error object; MLXB_OK for NULL.
///
/// Thread: one at a time per error. Since 0.1.0.
///
/// # Safety
/// `error` is NULL or came from this library and has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_error_status(error: *const mlxb_error) -> mlxb_status {
    // SAFETY: the caller's promise.
    unsafe { error.as_ref() }.map_or(mlxb_status::MLXB_OK, |error| error.status)
}

/// One line in lower case that names the offending thing and holds no prompt text; "" for NULL.
///
/// Ownership: lives as long as the error. Thread: one at a time per error. Since 0.1.0.
///
/// # Safety
/// `error` is NULL or came from this library and has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_error_message(error: *const mlxb_error) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { error.as_ref() }.map_or(c"".as_ptr(), |error| error.message.as_ptr())
}

/// What does not fit into one line, such as the candidates of MLXB_AMBIGUOUS; NULL where there
/// is no more to say.
///
/// Ownership: lives as long as the error. Thread: one at a time per error. Since 0.1.0.
///
/// # Safety
/// `error` is NULL or came from this library and has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_error_detail(error: *const mlxb_error) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { error.as_ref() }
        .and_then(|error| error.detail.as_deref())
        .map_or(ptr::null(), |detail| detail.as_ptr())
}

/// Frees an error object; NULL is ignored.
///
/// Ownership: consumes `error`. Thread: one at a time per error. Since 0.1.0.
///
/// # Safety
/// `error` is NULL or came from this library and has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_error_free(error: *mut mlxb_error) {
    if !error.is_null() {
        // SAFETY: made by `guard` with Box::into_raw, and the caller gives it up.
        drop(unsafe { Box::from_raw(error) });
    }
}
