//! Conversion from outside: real models, real folders, real processes, and mlx-lm's `convert` as
//! the reference.
#![allow(clippy::unwrap_used, reason = "a test's panic is its verdict")]

#[path = "../support/mod.rs"]
mod support;

mod against_mlx_lm;
#[cfg(target_os = "linux")]
mod disks;
mod folder;
mod gguf;
mod hostile;
mod processes;
mod reference;
mod report;
