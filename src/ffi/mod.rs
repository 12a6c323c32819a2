//! The C ABI: argument checks, handles, the panic guard and error objects.
//!
//! This room converts and calls; it decides nothing. `include/mlxb.h` is generated from it,
//! so its doc comments are the header's: each says what the parameters are, which statuses
//! come back and in which state they leave things, who owns what, which threads may call, and
//! since which version. What holds for all of them stands here and at the top of the header.
//!
//! # Conventions
//!
//! Status. A function that can fail returns mlxb_status and takes an mlxb_error pointer last,
//! which may be NULL. On entry the error, and every handle, string and count to be returned, are
//! set to NULL or 0. A failed call sets the error, to be freed with mlxb_error_free; whatever the
//! status, the objects involved are in a defined state, and the function's comment says which.
//! Messages and log lines hold no prompt and no generated text.
//!
//! Handles. Opaque, made and freed by the library only. A function named _free, _close or _release
//! is the only one that consumes a handle, and ignores NULL. Handles keep alive what they depend
//! on, so any order of freeing is fine.
//!
//! Threads. Models, caches, registries and cancel objects may be used from all threads at once;
//! kvs, conversations, lists, plans, strings and errors by one thread at a time. A kv in use
//! answers MLXB_BUSY.
//!
//! Text. UTF-8: NUL-terminated, or with a length beside the pointer. Text out is complete: never a
//! part of a character. Strings out are freed with mlxb_string_free.
//! Arrays out go into a buffer of the caller's, with its capacity; the count is told even when
//! it does not fit (MLXB_BUFFER_TOO_SMALL).
//!
//! Structs that the caller fills start with struct_size, and their _init function sets every
//! field to "unset": numbers to NaN or -1, where zero is a value, pointers to NULL, counts and
//! switches to 0. In structs that the library
//! fills, the caller sets struct_size, and no more than that is written. Fields are only ever
//! added at the end, so programs and libraries of different versions go together.
//!
//! Callbacks get their user_data first, and run on the thread that made the call, one at a time for
//! each call; only the log's comes from any thread. They must not throw or longjmp, nor free the
//! handles in use. New kinds of events and new statuses may appear: ignore the one, take the other
//! for a failure.
//!
//! Processes. The library stays loaded after dlclose, and ends its work when the process exits.
//! In a child of fork, calls that need MLX return MLXB_UNSUPPORTED.
#![allow(
    non_camel_case_types,
    reason = "the types bear the names they have in C"
)]

mod arguments;
mod cache;
mod cancel;
mod chat;
mod error;
mod event;
mod generate;
mod kv;
mod layout;
mod log;
mod memory;
mod model;
mod quantize;
mod registry;
mod respond;
mod status;
mod string;
mod version;

pub(crate) use arguments::*;
pub(crate) use error::{guard, guard_plain};
pub(crate) use event::Callback;
pub use {
    cache::*, cancel::*, chat::*, error::*, event::*, generate::*, kv::*, log::*, memory::*,
    model::*, quantize::*, registry::*, respond::*, status::*, string::*, version::*,
};
