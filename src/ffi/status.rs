//! `mlxb_status`, the C face of [`Kind`].

use std::ffi::c_char;

use crate::error::Kind;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $kind:ident;)*) => {
        impl From<Kind> for mlxb_status {
            fn from(kind: Kind) -> Self {
                match kind { $(Kind::$kind => Self::$name,)* }
            }
        }

        fn name(status: i32) -> &'static std::ffi::CStr {
            $(
                const { assert!(mlxb_status::$name as i32 == $value) };
            )*
            match status {
                0 => c"MLXB_OK",
                $($value => {
                    const NAME: &str = concat!(stringify!($name), "\0");
                    const { match std::ffi::CStr::from_bytes_with_nul(NAME.as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a status name holds no NUL"),
                    } }
                })*
                _ => c"MLXB_UNKNOWN",
            }
        }
    };
}

/// What a call came to. New values may appear in later versions: treat those that you do not
/// know as a failure.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum mlxb_status {
    /// It worked.
    MLXB_OK = 0,
    /// An argument is missing, out of range, or contradicts another one.
    MLXB_INVALID_ARGUMENT = 1,
    /// A text argument is not valid UTF-8.
    MLXB_INVALID_UTF8 = 2,
    /// The named thing does not exist.
    MLXB_NOT_FOUND = 3,
    /// A query matches several things; the error's detail lists them.
    MLXB_AMBIGUOUS = 4,
    /// The object is in use by another call, or the call would wait for itself.
    MLXB_BUSY = 5,
    /// The caller asked to stop.
    MLXB_CANCELLED = 6,
    /// The caller's buffer cannot hold the answer.
    MLXB_BUFFER_TOO_SMALL = 7,
    /// Understood, but not something that this library or platform does.
    MLXB_UNSUPPORTED = 8,
    /// The caller was built against a header that this library cannot serve.
    MLXB_VERSION_MISMATCH = 9,
    /// The operating system refused a file operation.
    MLXB_IO = 20,
    /// A file's content contradicts itself.
    MLXB_CORRUPT = 21,
    /// The disk is full.
    MLXB_NO_SPACE = 22,
    /// Another process holds the lock.
    MLXB_LOCKED = 23,
    /// Memory could not be allocated.
    MLXB_OUT_OF_MEMORY = 30,
    /// The request would exceed the memory budget.
    MLXB_OVER_BUDGET = 31,
    /// The model folder is incomplete or inconsistent.
    MLXB_MODEL_FORMAT = 40,
    /// The chat template does not compile or render.
    MLXB_TEMPLATE = 41,
    /// The grammar is malformed.
    MLXB_GRAMMAR = 42,
    /// The tokens do not fit the model's context.
    MLXB_CONTEXT_FULL = 43,
    /// The request in a wire protocol is malformed, or asks for what is not done here.
    MLXB_PROTOCOL = 44,
    /// MLX reported an error.
    MLXB_BACKEND = 50,
    /// A bug in the library: please report it.
    MLXB_PANIC = 90,
    /// An earlier MLXB_PANIC left this object unusable: free it.
    MLXB_POISONED = 91,
}

statuses! {
    MLXB_INVALID_ARGUMENT = 1, InvalidArgument;
    MLXB_INVALID_UTF8 = 2, InvalidUtf8;
    MLXB_NOT_FOUND = 3, NotFound;
    MLXB_AMBIGUOUS = 4, Ambiguous;
    MLXB_BUSY = 5, Busy;
    MLXB_CANCELLED = 6, Cancelled;
    MLXB_BUFFER_TOO_SMALL = 7, BufferTooSmall;
    MLXB_UNSUPPORTED = 8, Unsupported;
    MLXB_VERSION_MISMATCH = 9, VersionMismatch;
    MLXB_IO = 20, Io;
    MLXB_CORRUPT = 21, Corrupt;
    MLXB_NO_SPACE = 22, NoSpace;
    MLXB_LOCKED = 23, Locked;
    MLXB_OUT_OF_MEMORY = 30, OutOfMemory;
    MLXB_OVER_BUDGET = 31, OverBudget;
    MLXB_MODEL_FORMAT = 40, ModelFormat;
    MLXB_TEMPLATE = 41, Template;
    MLXB_GRAMMAR = 42, Grammar;
    MLXB_CONTEXT_FULL = 43, ContextFull;
    MLXB_PROTOCOL = 44, Protocol;
    MLXB_BACKEND = 50, Backend;
    MLXB_PANIC = 90, Panic;
    MLXB_POISONED = 91, Poisoned;
}

/// The name of a status, such as "MLXB_NOT_FOUND"; "MLXB_UNKNOWN" for a number that is none.
///
/// Ownership: a constant of the library, never freed. Thread: any. Since 0.1.0.
#[unsafe(no_mangle)]
pub extern "C" fn mlxb_status_name(status: i32) -> *const c_char {
    name(status).as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_header() {
        assert_eq!(name(0), c"MLXB_OK");
        assert_eq!(name(43), c"MLXB_CONTEXT_FULL");
        assert_eq!(name(-1), c"MLXB_UNKNOWN");
        assert_eq!(
            mlxb_status::from(Kind::ContextFull),
            mlxb_status::MLXB_CONTEXT_FULL
        );
    }
}
