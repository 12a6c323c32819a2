//! The building blocks that architectures share, with their weights inside. Operation for
//! operation what `mlx.nn` does, so that results agree to the bit.

use mlx_rs::{Array, fast, ops};

use crate::engine::mlx::{MlxResult, Packing, dequantize, quantized_matmul};

/// A weight matrix \[out, in\].
pub(crate) enum Matrix {
    /// Plain numbers, and a transposed view of them made once.
    Dense { weight: Array, transposed: Array },
    /// Groups of packed integers with scales, and biases in the affine mode.
    Packed {
        weight: Array,
        scales: Array,
        biases: Option<Array>,
        packing: Packing,
    },
}

impl Matrix {
    pub(crate) fn dense(weight: Array) -> MlxResult<Self> {
        let transposed = weight.transpose()?;
        Ok(Self::Dense { weight, transposed })
    }

    /// `x @ self.T`: x \[.., in\] to \[.., out\].
    fn apply(&self, x: &Array) -> MlxResult {
        match self {
            Self::Dense { transposed, .. } => x.matmul(transposed),
            Self::Packed {
                weight,
                scales,
                biases,
                packing,
            } => quantized_matmul(x, weight, scales, biases.as_ref(), *packing),
        }
    }
}

/// An affine map of the last axis.
pub(crate) struct Linear {
    pub(crate) matrix: Matrix,
    pub(crate) bias: Option<Array>,
}

impl Linear {
    /// x \[.., in\] to \[.., out\].
    pub(crate) fn apply(&self, x: &Array) -> MlxResult {
        match (&self.matrix, &self.bias) {
            (Matrix::Dense { transposed, .. }, Some(bias)) => {
                ops::addmm(bias, x, transposed, None, None)
            }
            (matrix, None) => matrix.apply(x),
            (matrix, Some(bias)) => matrix.apply(x)?.add(bias),
        }
    }
}

/// Token vectors \[vocabulary, hidden\].
pub(crate) struct Embedding(pub(crate) Matrix);

impl Embedding {
    /// Ids \[1, L\] to vectors \[1, L, hidden\].
    pub(crate) fn look_up(&self, ids: &Array) -> MlxResult {
        match &self.0 {
            Matrix::Dense { weight, .. } => weight.take_axis(ids, 0),
            Matrix::Packed {
                weight,
                scales,
                biases,
                packing,
            } => {
                let rows = |table: &Array| table.take_axis(ids, 0);
                let biases = biases.as_ref().map(rows).transpose()?;
                dequantize(&rows(weight)?, &rows(scales)?, biases.as_ref(), *packing)
            }
        }
    }

    /// The table as a tied output head: hidden \[.., hidden\] to logits \[.., vocabulary\].
    pub(crate) fn as_head(&self, x: &Array) -> MlxResult {
        self.0.apply(x)
    }
}

/// Root mean square normalisation of the last axis.
pub(crate) struct RmsNorm {
    pub(crate) weight: Array,
    pub(crate) epsilon: f32,
}

impl RmsNorm {
    pub(crate) fn apply(&self, x: &Array) -> MlxResult {
        fast::rms_norm(x, Some(&self.weight), self.epsilon)
    }
}

/// `silu(gate) * x`, as plain operations: MLX would compile the fused form with a C++ compiler
/// on the CPU.
pub(crate) fn swiglu(gate: &Array, x: &Array) -> MlxResult {
    gate.multiply(ops::sigmoid(gate)?)?.multiply(x)
}
