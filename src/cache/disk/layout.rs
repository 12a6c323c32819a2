//! The tensors of an entry.

use std::{collections::HashSet, sync::Arc};

use crate::{
    error::{Error, Kind, Result},
    escape::Escaped,
    safetensors::Dtype,
};

/// Names in the file that are not an entry's tensors.
pub(super) const TOKENS: &str = "tokens";
pub(super) const CHECKSUMS: &str = "checksums";
const METADATA: &str = "__metadata__";

/// More than any model has; bounds the header of a file.
const MOST_TENSORS: usize = 8192;
const MOST_NAME_BYTES: usize = 256;
/// More than any model has; keeps the sizes of files within 64 bits.
const MOST_POSITION_BYTES: u64 = 1 << 36;

/// One tensor of an entry: \[1, heads, positions, width\]. Segments cut it by positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TensorLayout {
    /// Its name in the file, such as `layers.0.keys`.
    pub(crate) name: String,
    /// The type of its elements.
    pub(crate) dtype: Dtype,
    /// The second dimension.
    pub(crate) heads: usize,
    /// The last dimension.
    pub(crate) width: usize,
}

/// The tensors of an entry, in the order in which files hold them.
pub(crate) type Layout = Arc<[TensorLayout]>;

impl TensorLayout {
    /// Bytes of one position of one head; nothing where that is no whole number of bytes, or
    /// overflows.
    fn checked_row_bytes(&self) -> Option<u64> {
        let bits = (self.width as u64).checked_mul(self.dtype.bits()?)?;
        (bits > 0 && bits.is_multiple_of(8)).then_some(bits / 8)
    }

    fn checked_position_bytes(&self) -> Option<u64> {
        (self.heads as u64)
            .checked_mul(self.checked_row_bytes()?)
            .filter(|&bytes| bytes > 0)
    }

    /// Bytes of one position of one head. Only for a layout that [`check`] passed.
    pub(super) fn row_bytes(&self) -> usize {
        let bytes = self.checked_row_bytes().expect("the layout was checked");
        usize::try_from(bytes).expect("at most MOST_POSITION_BYTES")
    }

    /// Bytes of one position of all heads. Only for a layout that [`check`] passed.
    pub(super) fn position_bytes(&self) -> u64 {
        self.checked_position_bytes()
            .expect("the layout was checked")
    }
}

/// Refuses what a file cannot hold.
///
/// # Errors
/// [`Kind::InvalidArgument`], naming the tensor.
pub(super) fn check(layout: &[TensorLayout]) -> Result<()> {
    let invalid = |what: String| Err(Error::new(Kind::InvalidArgument, what));
    if layout.is_empty() || layout.len() > MOST_TENSORS {
        return invalid(format!(
            "number of tensors is not from 1 to {MOST_TENSORS}: {}",
            layout.len()
        ));
    }
    let mut names = HashSet::from([TOKENS, CHECKSUMS, METADATA]);
    let mut position_bytes = 0u64;
    for tensor in layout {
        if tensor.name.len() > MOST_NAME_BYTES || !names.insert(&tensor.name) {
            return invalid(format!(
                "tensor's name is too long, reserved or not the first of its kind: {}",
                Escaped(&tensor.name)
            ));
        }
        let sum = tensor
            .checked_position_bytes()
            .and_then(|bytes| position_bytes.checked_add(bytes))
            .filter(|&sum| sum <= MOST_POSITION_BYTES);
        let Some(sum) = sum else {
            return invalid(format!(
                "tensor cannot be cut by positions: {}",
                Escaped(&tensor.name)
            ));
        };
        position_bytes = sum;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, dtype: Dtype, heads: usize, width: usize) -> TensorLayout {
        TensorLayout {
            name: name.to_owned(),
            dtype,
            heads,
            width,
        }
    }

    #[test]
    fn what_no_file_can_hold_is_refused() {
        let keys = tensor("layers.0.keys", Dtype::BF16, 2, 64);
        assert_eq!((keys.row_bytes(), keys.position_bytes()), (128, 256));
        check(&[keys.clone(), tensor("packed", Dtype::F4, 1, 2)]).unwrap();
        for bad in [
            vec![],
            vec![keys.clone(), keys.clone()],
            vec![tensor(TOKENS, Dtype::U8, 1, 1)],
            vec![tensor(CHECKSUMS, Dtype::U8, 1, 1)],
            vec![tensor(METADATA, Dtype::U8, 1, 1)],
            vec![tensor(&"x".repeat(257), Dtype::U8, 1, 1)],
            vec![tensor("x", Dtype::U8, 0, 1)],
            vec![tensor("x", Dtype::U8, 1, 0)],
            vec![tensor("x", Dtype::F4, 1, 3)],
            vec![tensor("x", Dtype::Unknown, 1, 1)],
            vec![tensor("x", Dtype::U8, usize::MAX, usize::MAX)],
            vec![tensor("x", Dtype::U64, 1, usize::MAX)],
            vec![tensor("x", Dtype::U8, 1, 1 << 36), keys],
        ] {
            let error = check(&bad).unwrap_err();
            assert_eq!(error.kind(), Kind::InvalidArgument, "{bad:?}");
        }
    }
}
