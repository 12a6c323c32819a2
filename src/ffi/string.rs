//! Text that crosses the boundary.

use std::ffi::{CString, c_char};

use super::guard_plain;

/// Borrowed UTF-8: `len` bytes at `ptr`, not NUL-terminated.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct mlxb_str {
    /// The first byte; not NULL.
    pub ptr: *const c_char,
    /// Bytes.
    pub len: usize,
}

impl From<&str> for mlxb_str {
    fn from(text: &str) -> Self {
        Self {
            ptr: text.as_ptr().cast(),
            len: text.len(),
        }
    }
}

/// Frees a string that the library returned through a `char **`; NULL is ignored.
///
/// Ownership: consumes `string`. Thread: one at a time per string. Since 0.1.0.
///
/// # Safety
/// `string` is NULL or came from this library as an owned string and has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlxb_string_free(string: *mut c_char) {
    if !string.is_null() {
        // SAFETY: made by `owned_string` with CString::into_raw, and the caller gives it up.
        guard_plain((), || drop(unsafe { CString::from_raw(string) }));
    }
}
