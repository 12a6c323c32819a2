//! The header of a file, checked.

use std::{collections::HashSet, io::Read};

use super::{
    block::GgmlType,
    cursor::{Cursor, corrupt},
    metadata::Metadata,
};
use crate::{
    error::{Error, Kind, Result},
    escape::Escaped,
};

const MAGIC: [u8; 4] = *b"GGUF";

/// Versions that differ in nothing that matters here. The first had narrower counts.
const VERSIONS: std::ops::RangeInclusive<u32> = 2..=3;

const DEFAULT_ALIGNMENT: u64 = 32;

/// As the format has it.
const MOST_DIMENSIONS: u32 = 4;

/// What a header says of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TensorInfo {
    /// With whatever characters the file gave it.
    pub(crate) name: String,
    pub(crate) kind: GgmlType,
    /// Rows first, as everywhere but in the file.
    pub(crate) shape: Vec<usize>,
    /// Where the data begins, in bytes from the start of the file. Nothing is known of it for
    /// types that cannot be read.
    pub(crate) begin: u64,
}

impl TensorInfo {
    /// Bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        let columns = self.shape.last().copied().unwrap_or(1);
        let between: usize = self.shape.iter().skip(1).rev().skip(1).product();
        let columns = if self.shape.len() > 1 { columns } else { 1 };
        self.kind.row_bytes(columns).unwrap_or(0) * between
    }
}

#[derive(Debug)]
pub(super) struct Header {
    pub(super) metadata: Metadata,
    pub(super) tensors: Vec<TensorInfo>,
}

impl Header {
    /// Reads the header of a file.
    pub(super) fn read<R: Read>(cursor: &mut Cursor<R>) -> Result<Self> {
        if cursor.take::<4>()? != MAGIC {
            return Err(corrupt("not a GGUF file"));
        }
        let version = cursor.u32()?;
        if !VERSIONS.contains(&version) {
            return Err(Error::new(
                Kind::Unsupported,
                format!("GGUF version is not supported: {version}"),
            ));
        }
        // An empty name, dimensions, type and offset; an empty key, and a byte of its type.
        let tensor_count = cursor.count(8 + 4 + 4 + 8, "tensors")?;
        let key_count = cursor.count(8 + 4 + 1, "keys")?;
        let metadata = Metadata::read(cursor, key_count)?;
        let alignment = metadata.count("general.alignment")?;
        let alignment = alignment.unwrap_or(DEFAULT_ALIGNMENT);
        if !alignment.is_power_of_two() || alignment > 1 << 20 {
            return Err(corrupt(format!(
                "alignment is no power of two: {alignment}"
            )));
        }
        let mut names = HashSet::new();
        let mut tensors = Vec::with_capacity(tensor_count);
        for _ in 0..tensor_count {
            let tensor = tensor(cursor, alignment)?;
            if !names.insert(tensor.name.clone()) {
                return Err(corrupt(format!(
                    "a tensor stands twice: {}",
                    Escaped(&tensor.name)
                )));
            }
            tensors.push(tensor);
        }
        place(
            &mut tensors,
            cursor.at.next_multiple_of(alignment),
            cursor.file_bytes,
        )?;
        Ok(Self { metadata, tensors })
    }
}

/// Reads the entry of a tensor, which begins at an offset from where the data does.
fn tensor<R: Read>(cursor: &mut Cursor<R>, alignment: u64) -> Result<TensorInfo> {
    let name = cursor.text()?;
    let refuse = |what: String| Err(corrupt(format!("{what}: {}", Escaped(&name))));
    let dimension_count = cursor.u32()?;
    if dimension_count == 0 || dimension_count > MOST_DIMENSIONS {
        return refuse(format!("a tensor has {dimension_count} dimensions"));
    }
    let mut shape = Vec::new();
    for _ in 0..dimension_count {
        let size = cursor.u64()?;
        match usize::try_from(size) {
            Ok(size) if size > 0 => shape.push(size),
            _ => return refuse(format!("a tensor has a dimension of {size}")),
        }
    }
    shape.reverse();
    let kind = GgmlType::from_number(cursor.u32()?);
    let begin = cursor.u64()?;
    if !begin.is_multiple_of(alignment) {
        return refuse(format!("a tensor is not aligned to {alignment} bytes"));
    }
    Ok(TensorInfo {
        name,
        kind,
        shape,
        begin,
    })
}

/// Makes offsets absolute, and checks the ranges against the file and each other.
fn place(tensors: &mut [TensorInfo], data_begin: u64, file_bytes: u64) -> Result<()> {
    let mut ranges = Vec::with_capacity(tensors.len());
    for (index, tensor) in tensors.iter_mut().enumerate() {
        let refuse = |what: &str| corrupt(format!("{what}: {}", Escaped(&tensor.name)));
        let elements = tensor.shape.iter().try_fold(1u64, |product, &size| {
            // Signed, so that every product of some of them is a count for MLX, too.
            product
                .checked_mul(size as u64)
                .filter(|&product| product < 1 << 62)
        });
        let elements = elements.ok_or_else(|| refuse("a tensor's shape overflows"))?;
        // Types that cannot be read are refused where they are asked for.
        let columns = tensor.shape.last().copied().unwrap_or(1);
        let length = match tensor.kind.row_bytes(columns) {
            Some(row_bytes) => (elements / columns as u64).checked_mul(row_bytes as u64),
            None if tensor.kind.is_readable() => {
                return Err(refuse("a tensor's rows are no whole blocks"));
            }
            None => Some(0),
        };
        let begin = data_begin.checked_add(tensor.begin);
        let end = begin.and_then(|begin| begin.checked_add(length?));
        let (Some(begin), Some(end)) = (begin, end) else {
            return Err(refuse("a tensor's place overflows"));
        };
        if end > file_bytes {
            return Err(refuse(&format!(
                "file ends {} bytes before a tensor's end",
                end - file_bytes
            )));
        }
        tensor.begin = begin;
        ranges.push((begin, end, index));
    }
    ranges.sort_unstable();
    let overlap = ranges.windows(2).find(|pair| pair[1].0 < pair[0].1);
    match overlap {
        None => Ok(()),
        Some(pair) => Err(corrupt(format!(
            "a tensor overlaps the one before it: {}",
            Escaped(&tensors[pair[1].2].name)
        ))),
    }
}
