//! An embeddable library for local language models on Apple's MLX.

mod cache;
mod cancel;
mod chat;
mod engine;
pub mod error;
mod escape;
pub mod ffi;
mod footprint;
mod generate;
mod gguf;
pub mod memory;
mod model;
mod protocol;
pub mod quantize;
pub mod registry;
mod regular_file;
mod safetensors;
mod snapshot;
mod supported;
mod tokenizer;

pub use cache::{Cache, CacheOptions, CacheStatistics, DiskOptions, Match, OnEvict};
pub use cancel::{Cancel, Flow};
pub use chat::{Chat, ChatTemplate, ChatTokens, Clock};
pub use error::{Error, Kind, Result};
pub use generate::{
    CacheUse, DEFAULT_PENALTY_CONTEXT, DEFAULT_PREFILL_CHUNK, Event, Finish, GenerateOptions,
    Generated, Logprobs, Penalties, Penalty, Sampling,
};
pub use model::{DeviceKind, Kv, LoadOptions, Model, ModelInfo};
pub use protocol::{OnWireEvent, Protocol, RespondOptions};
pub use tokenizer::{Detokenizer, Tokenizer};
