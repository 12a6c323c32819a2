//! The element types that files and MLX share.

use mlx_rs::Dtype as MlxDtype;

use crate::safetensors::Dtype;

const TABLE: [(Dtype, MlxDtype); 5] = [
    (Dtype::F32, MlxDtype::Float32),
    (Dtype::BF16, MlxDtype::Bfloat16),
    (Dtype::F16, MlxDtype::Float16),
    (Dtype::U32, MlxDtype::Uint32),
    (Dtype::U8, MlxDtype::Uint8),
];

/// MLX's name of a file's type, where the library uses it.
pub(crate) fn to_mlx_dtype(dtype: Dtype) -> Option<MlxDtype> {
    TABLE.iter().find(|row| row.0 == dtype).map(|row| row.1)
}

/// A file's name of MLX's type, where the library uses it.
pub(crate) fn from_mlx_dtype(dtype: MlxDtype) -> Option<Dtype> {
    TABLE.iter().find(|row| row.1 == dtype).map(|row| row.0)
}
