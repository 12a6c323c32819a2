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
mod error;
mod layout;
mod status;

pub(crate) use arguments::*;
pub(crate) use error::{guard, guard_plain};
pub use error::{
    mlxb_error, mlxb_error_detail, mlxb_error_free, mlxb_error_message, mlxb_error_status,
};
pub use status::{mlxb_status, mlxb_status_name};
