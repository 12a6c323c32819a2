//! A checked reader and a writer of safetensors files.
//!
//! A file is an 8-byte little-endian length, a JSON header of that length, and the tensors'
//! bytes without gaps (<https://huggingface.co/docs/safetensors>). Everything that the header
//! claims is checked before anything is read by it: the lengths against the file, each tensor's
//! range against its shape and type, and the ranges against each other. Files are never mapped
//! into memory, because a mapped file that is truncated ends the process; a positional read
//! that comes up short is an error that names the shard.

mod dtype;
mod header;
mod shard;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use dtype::Dtype;
pub(crate) use header::{Header, TensorInfo};
pub(crate) use shard::Shard;
pub(crate) use writer::{NewTensor, Writer};
