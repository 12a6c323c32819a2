//! The C ABI: argument checks, handles, the panic guard and error objects.
//!
//! This room converts and calls; it decides nothing. `include/mlxb.h` is generated from it,
//! so its doc comments are the header's: each says what the parameters are, which statuses
//! come back and in which state they leave things, who owns what, which threads may call, and
//! since which version.
#![allow(
    non_camel_case_types,
    reason = "the types bear the names they have in C"
)]

mod arguments;
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
mod status;
mod string;
mod version;

pub(crate) use arguments::*;
pub(crate) use error::{guard, guard_plain};
pub(crate) use event::Callback;
pub use {
    cancel::*, chat::*, error::*, event::*, generate::*, kv::*, log::*, memory::*, model::*,
    status::*, string::*, version::*,
};
