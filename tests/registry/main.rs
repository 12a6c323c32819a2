//! The registry from outside: hubs on disk, real databases, real processes.
#![allow(clippy::unwrap_used, reason = "a test's panic is its verdict")]

mod database;
mod fit_measured;
mod gc_property;
mod hostile;
mod hub;
mod huggingface;
mod processes;
mod public_bugs;
mod random_hub;
mod records;
