//! Making a model smaller: from the weights of a Hugging Face folder to a folder for MLX.
//!
//! A thread reads a few rows of a tensor, the engine packs them between two steps of others, the
//! caller's thread writes the result: a model of any size needs the memory of a few such pieces. The new folder is written under another name beside its place and gets its own when it
//! is complete.
//!
//! mlx-lm's `convert` is the reference: equal tensors, to the bit, and an equal configuration.
//! The differences are
//!
//! - what is no finite number, or becomes none in a narrower type, is an error;
//! - the configuration keeps the order of its keys, and says `false` of matrices that stay plain;
//! - the tokenizer's files are copied as they are, and the model card keeps its text;
//! - a type that the caller asks for is that of dequantized weights too.

mod auxiliary;
mod card;
mod config;
mod convert;
mod gguf;
mod output;
mod piece;
mod plan;
mod recipe;
mod report;
mod source;
mod target;
mod values;

use std::path::Path;

pub use self::{
    recipe::Recipe,
    report::{LayerReport, Report},
};
pub use crate::model::{QuantizationMode, QuantizationParameters};
use crate::{
    cancel::{Cancel, Flow},
    error::{Error, Kind, Result},
    safetensors::Dtype,
};

/// What becomes of the matrices of a model: those of linear layers and of the embedding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matrices {
    /// They stay as they are, plain or packed.
    Keep,
    /// Those that are packed become plain.
    Dequantize,
    /// Those that are plain are packed; those that are packed stay.
    Quantize(Packings),
}

/// How matrices are packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packings {
    /// Those that nothing else is said of. Matrices whose rows are no multiple of the group size
    /// stay plain.
    pub default: QuantizationParameters,
    /// Decides over the bits in place of `default`.
    pub recipe: Option<Recipe>,
    /// Single modules, by their path such as `model.layers.0.mlp.down_proj`; `None` leaves one
    /// plain.
    pub modules: Vec<(String, Option<QuantizationParameters>)>,
}

/// A type of floating-point numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatType {
    /// 32 bits.
    Float32,
    /// 16 bits, IEEE's.
    Float16,
    /// 16 bits, the upper half of [`Float32`](Self::Float32).
    Bfloat16,
}

impl FloatType {
    const ALL: [Self; 3] = [Self::Float32, Self::Float16, Self::Bfloat16];

    /// The name that configurations have for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|float| float.name() == name)
    }

    fn dtype(self) -> Dtype {
        match self {
            Self::Float32 => Dtype::F32,
            Self::Float16 => Dtype::F16,
            Self::Bfloat16 => Dtype::BF16,
        }
    }
}

/// What files of weights hold at most by default: 5 GiB, as mlx-lm's.
pub const DEFAULT_MOST_SHARD_BYTES: u64 = 5 << 30;

/// How to convert a model.
pub struct QuantizeOptions<'a> {
    /// What becomes of the matrices.
    pub matrices: Matrices,
    /// The type of all numbers that are not packed, scales and biases included; where `None`,
    /// what the configuration says, or else the one that each of them has.
    pub dtype: Option<FloatType>,
    /// Weights beyond this many bytes begin another file. A larger tensor has one of its own.
    pub most_shard_bytes: u64,
    /// Whether a model that is in the target's place already is replaced, once the new one is
    /// complete.
    pub overwrite: bool,
    /// Told before each piece of work and at the end: bytes read, and bytes in all. Called on
    /// the calling thread; [`Flow::Stop`] cancels.
    pub on_progress: Option<&'a mut dyn FnMut(u64, u64) -> Flow>,
    /// Looked at before each piece of work.
    pub cancel: Option<Cancel>,
}

impl QuantizeOptions<'_> {
    /// Options with which the matrices become `matrices`, and nothing else changes.
    pub fn new(matrices: Matrices) -> Self {
        Self {
            matrices,
            dtype: None,
            most_shard_bytes: DEFAULT_MOST_SHARD_BYTES,
            overwrite: false,
            on_progress: None,
            cancel: None,
        }
    }
}

/// What a conversion came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quantized {
    /// Bytes of all tensors.
    pub tensor_bytes: u64,
    /// The model's parameters; scales and biases of groups are none.
    pub parameter_count: u64,
    /// Matrices that are packed.
    pub packed_count: usize,
    /// Matrices that are plain.
    pub plain_count: usize,
}

impl Quantized {
    /// Bits that a parameter takes on average, scales and biases included.
    pub fn bits_per_weight(&self) -> f64 {
        bits_per_weight(self.tensor_bytes, self.parameter_count)
    }
}

fn bits_per_weight(tensor_bytes: u64, parameter_count: u64) -> f64 {
    8.0 * tensor_bytes as f64 / parameter_count.max(1) as f64
}

/// Converts the model at `source`, a folder as [`Model::load`](crate::Model::load) takes it or a
/// GGUF file of a llama-like model, into the folder `target`, which must not exist unless the options say so. Its parent must.
///
/// However the call ends, and if the process ends before it, there is a complete model at
/// `target` or what was there before.
///
/// # Errors
/// Those of loading; [`Kind::InvalidArgument`] for a target that exists, or that holds the
/// source, and for modules that are not there or cannot be packed as asked; [`Kind::ModelFormat`]
/// naming a tensor with a value that is no finite number, or too large for its new type;
/// [`Kind::NoSpace`]; [`Kind::Io`]; [`Kind::Cancelled`].
pub fn quantize(source: &Path, target: &Path, options: QuantizeOptions<'_>) -> Result<Quantized> {
    convert::convert(source, target, options)
}

/// Tells how far the model at `source` would be from itself after a conversion with these
/// options, as a whole and with each of its layers converted alone. See [`Report`]. Writes
/// nothing; takes the memory of the model and of what it would become, and runs the model once
/// for each layer that changes and each 128 tokens of `text`.
///
/// # Errors
/// As [`quantize`], but for those of writing; [`Kind::InvalidArgument`] for options that pack
/// nothing and for text without tokens, [`Kind::OverBudget`].
pub fn report(source: &Path, text: &str, options: QuantizeOptions<'_>) -> Result<Report> {
    report::report(source, text, options)
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(Kind::InvalidArgument, what)
}
