//! The models on this machine.

mod fit;
mod gc;
mod models;

pub use {fit::*, gc::*, models::*};
