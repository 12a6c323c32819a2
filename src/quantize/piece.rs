//! Rows of tensors, on their way from a file through MLX.

use std::ops::Range;

use mlx_rs::{Array, Dtype as MlxDtype};

use super::{
    plan::{Step, Work},
    source::{Source, Tensor},
    values::{Flaw, flaw},
};
use crate::{
    engine::{Mlx, Pages, mlx},
    error::{Error, Kind, Result},
    escape::Escaped,
    model::to_mlx_dtype,
    safetensors::Dtype,
};

/// Smaller pieces are copied: a mapping of their own would waste most of a page.
const ADOPT_FROM_BYTES: usize = 64 * 1024;

/// What a step makes of its inputs, cast already.
///
/// # Errors
/// Those of MLX.
pub(super) fn compute(work: Work, arrays: &[Array]) -> Result<Vec<Array>> {
    Ok(match (work, arrays) {
        (Work::Quantize(parameters), [weight]) => mlx::quantize(weight, parameters.as_packing())?,
        (Work::Dequantize(parameters, dtype), [weight, scales, biases @ ..]) => {
            let packing = parameters.as_packing();
            let values = mlx::dequantize(weight, scales, biases.first(), packing)?;
            vec![values.as_dtype(mlx_dtype(dtype)?)?]
        }
        (_, arrays) => arrays.to_vec(),
    })
}

/// Refuses values that are none, or none in the type that the tensor gets.
///
/// # Errors
/// [`Kind::ModelFormat`] naming the tensor.
pub(super) fn check(tensor: &Tensor, dtype: Dtype, bytes: &[u8]) -> Result<()> {
    match flaw(bytes, tensor.dtype, dtype) {
        None => Ok(()),
        Some(Flaw::NotFinite) => Err(not_finite(&tensor.name)),
        Some(Flaw::TooLarge) => Err(too_large(&tensor.name, dtype)),
    }
}

/// Refuses dequantized values that are none: finite factors may have a product that is not.
///
/// # Errors
/// [`Kind::ModelFormat`] naming the tensor.
pub(super) fn check_made(step: &Step, parts: &[Vec<u8>]) -> Result<()> {
    let Work::Dequantize(_, dtype) = step.work else {
        return Ok(());
    };
    match parts.iter().find_map(|part| flaw(part, dtype, dtype)) {
        None => Ok(()),
        Some(_) => Err(too_large(&step.inputs[0].0.name, dtype)),
    }
}

fn not_finite(name: &str) -> Error {
    Error::new(
        Kind::ModelFormat,
        format!(
            "a tensor holds a value that is no finite number: {}",
            Escaped(name)
        ),
    )
}

fn too_large(name: &str, dtype: Dtype) -> Error {
    Error::new(
        Kind::ModelFormat,
        format!(
            "a tensor holds a value that is too large for {}: {}",
            dtype.name().unwrap_or_default(),
            Escaped(name)
        ),
    )
}

/// Rows of a tensor, read.
pub(super) struct Piece {
    pub(super) memory: Memory,
    shape: Vec<i32>,
    dtype: Dtype,
}

/// The bytes of a piece.
pub(super) enum Memory {
    /// For MLX to adopt.
    Pages(Pages),
    /// For MLX to copy.
    Small(Vec<u8>),
}

impl Memory {
    fn new(length: usize) -> Result<Self> {
        if length < ADOPT_FROM_BYTES {
            return Ok(Self::Small(vec![0; length]));
        }
        Pages::new(length).map(Self::Pages)
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Pages(pages) => pages.as_mut_slice(),
            Self::Small(bytes) => bytes,
        }
    }
}

impl Piece {
    /// Reads rows of a tensor.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] for more rows than MLX counts, and those of reading.
    pub(super) fn read(source: &Source, tensor: &Tensor, rows: Range<usize>) -> Result<Self> {
        let too_large = |_| {
            let what = format!("a tensor is too large: {}", Escaped(&tensor.name));
            Error::new(Kind::Unsupported, what)
        };
        let mut shape = Vec::with_capacity(tensor.shape.len());
        shape.push(i32::try_from(rows.len()).map_err(too_large)?);
        for &size in tensor.shape.iter().skip(1) {
            shape.push(i32::try_from(size).map_err(too_large)?);
        }
        let mut memory = Memory::new(rows.len() * tensor.row_bytes())?;
        source.read(tensor, rows, memory.bytes())?;
        Ok(Self {
            memory,
            shape,
            dtype: tensor.dtype,
        })
    }

    /// As MLX has it.
    ///
    /// # Errors
    /// Those of MLX.
    pub(super) fn into_array(self, mlx: &Mlx) -> Result<Array> {
        let dtype = mlx_dtype(self.dtype)?;
        Ok(match self.memory {
            Memory::Pages(pages) => mlx.adopt(pages, &self.shape, dtype)?,
            Memory::Small(bytes) => mlx.copy(&bytes, &self.shape, dtype),
        })
    }
}

/// MLX's name of a type.
///
/// # Errors
/// [`Kind::Unsupported`] for one that the library does not compute with.
pub(super) fn mlx_dtype(dtype: Dtype) -> Result<MlxDtype> {
    to_mlx_dtype(dtype).ok_or_else(|| {
        let name = dtype.name().unwrap_or_default();
        Error::new(
            Kind::Unsupported,
            format!("a type is not supported: {name}"),
        )
    })
}
