//! Generating through the Rust API, with tiny models: how it ends and what it leaves, what
//! callbacks are told, and what sampling does.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod defaults;
mod ends;
mod run;
mod sampling;
mod text;
#[allow(dead_code, reason = "each test program uses a part")]
mod tiny_model;
