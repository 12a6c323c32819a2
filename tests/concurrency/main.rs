//! Several generations at once, and the memory that they share. The tests run one after another:
//! they look at the time and the memory of the whole process.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]
#![expect(clippy::print_stderr, reason = "numbers, shown with --nocapture")]

mod memory;
mod restoring;
#[path = "../generation/run.rs"]
mod run;
mod threads;
#[path = "../generation/tiny_model.rs"]
#[allow(dead_code, reason = "each test program uses a part")]
mod tiny_model;

use std::sync::{Mutex, MutexGuard, PoisonError};

use mlxb::{GenerateOptions, Sampling};

/// Held while a test runs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// So many tokens at temperature 1, without an end of their own.
fn endless(max_tokens: u64, seed: u64) -> GenerateOptions {
    let mut sampling = Sampling {
        temperature: 1.0,
        seed: Some(seed),
        ..Sampling::default()
    };
    sampling.penalties.logit_bias = vec![(tiny_model::END, f32::NEG_INFINITY)];
    GenerateOptions {
        max_tokens: Some(max_tokens),
        sampling,
        ..GenerateOptions::default()
    }
}
