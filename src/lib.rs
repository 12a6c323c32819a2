//! An embeddable library for local language models on Apple's MLX.

pub mod error;
pub mod ffi;

pub use error::{Error, Kind, Result};
