//! The header of a safetensors file: parsed strictly, and checked against the file's length.

use std::{collections::BTreeMap, fmt, path::Path};

use serde::de::{Deserializer as _, Error as _, MapAccess, SeqAccess, Visitor};

use super::Dtype;
use crate::{
    error::{Error, Kind, Result},
    escape::{Escaped, EscapedPath},
};

/// Bytes before the header: its own length, little-endian.
pub(super) const PREFIX_BYTES: u64 = 8;

/// The longest header that the format allows.
pub(super) const MOST_HEADER_BYTES: u64 = 100_000_000;

/// More dimensions than any real tensor has; bounds what a hostile header makes us keep.
const MOST_DIMENSIONS: usize = 64;

pub(super) const METADATA: &str = "__metadata__";

/// What a header says of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TensorInfo {
    /// The name, with whatever characters the file gave it: pass it through
    /// [`Escaped`] before showing it.
    pub(crate) name: String,
    /// The element type.
    pub(crate) dtype: Dtype,
    /// The dimensions; none for a scalar.
    pub(crate) shape: Vec<usize>,
    /// Where the elements begin, in bytes from the start of the file.
    pub(crate) begin: u64,
    /// Where they end.
    pub(crate) end: u64,
    /// The type's name where it is [`Dtype::Unknown`].
    unknown_dtype: Option<Box<str>>,
}

impl TensorInfo {
    /// Bytes of the elements.
    pub(crate) fn byte_len(&self) -> u64 {
        self.end - self.begin
    }

    /// Number of elements, by the shape.
    pub(crate) fn element_count(&self) -> u64 {
        // The product was checked while parsing.
        self.shape
            .iter()
            .map(|&dimension| dimension as u64)
            .product()
    }

    /// The element type's name, as the header gives it.
    pub(crate) fn dtype_name(&self) -> &str {
        self.dtype
            .name()
            .or(self.unknown_dtype.as_deref())
            .unwrap_or_default()
    }
}

/// The checked header of a file.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    tensors: Vec<TensorInfo>,
    metadata: BTreeMap<String, String>,
}

impl Header {
    /// Checks the length that a file of `file_bytes` begins with; answers the header's bytes.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] when the header would be longer than the file or than the format allows.
    pub(super) fn check_length(path: &Path, prefix: &[u8], file_bytes: u64) -> Result<u64> {
        let Some(prefix) = prefix.first_chunk::<{ PREFIX_BYTES as usize }>() else {
            return Err(corrupt(
                path,
                format!("too short for a header, bytes: {file_bytes}"),
            ));
        };
        let length = u64::from_le_bytes(*prefix);
        if length > MOST_HEADER_BYTES {
            return Err(corrupt(
                path,
                format!("header is longer than {MOST_HEADER_BYTES} bytes: {length}"),
            ));
        }
        if PREFIX_BYTES + length > file_bytes {
            return Err(corrupt(
                path,
                format!("header is longer than the file of {file_bytes} bytes: {length}"),
            ));
        }
        Ok(length)
    }

    /// Checks what the format asks of the header's first byte.
    pub(super) fn check_first_byte(path: &Path, json: &[u8]) -> Result<()> {
        match json.first() {
            Some(b'{') => Ok(()),
            _ => Err(corrupt(path, "header does not begin with {".into())),
        }
    }

    /// Parses `json`, the header of a file of `file_bytes`, and checks every tensor's range
    /// against the file, its shape and the other tensors. `path` is for messages.
    ///
    /// # Errors
    /// [`Kind::Corrupt`], naming the file and, where there is one, the tensor.
    pub(crate) fn parse(path: &Path, json: &[u8], file_bytes: u64) -> Result<Self> {
        Self::check_first_byte(path, json)?;
        let mut at = None;
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let (raw, metadata) = deserializer
            .deserialize_map(HeaderVisitor { at: &mut at })
            .and_then(|raw| deserializer.end().map(|()| raw))
            .map_err(|error| {
                let mut what = format!("header is malformed: {}", Escaped(&error.to_string()));
                if let Some(name) = &at {
                    what += &format!(": {}", Escaped(name));
                }
                corrupt(path, what)
            })?;
        let data_begin = PREFIX_BYTES + json.len() as u64;
        let tensors = check(raw, data_begin, file_bytes).map_err(|what| corrupt(path, what))?;
        Ok(Self { tensors, metadata })
    }

    /// The tensors, in the header's order.
    pub(crate) fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The writer's strings by name.
    pub(crate) fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }
}

pub(super) fn corrupt(path: &Path, what: String) -> Error {
    Error::new(Kind::Corrupt, format!("{}: {what}", EscapedPath(path)))
}

/// Checks what the tensors say against each other and the file, and makes offsets absolute.
fn check(raw: Vec<RawTensor>, data_begin: u64, file_bytes: u64) -> Result<Vec<TensorInfo>, String> {
    // `file_bytes` covers the header: checked before it was read.
    let data_bytes = file_bytes
        .checked_sub(data_begin)
        .ok_or("header is longer than the file")?;
    for tensor in &raw {
        let name = Escaped(&tensor.name);
        if tensor.begin > tensor.end {
            return Err(format!(
                "tensor ends before it begins, {}..{}: {name}",
                tensor.begin, tensor.end
            ));
        }
        let bits = tensor
            .shape
            .iter()
            .try_fold(1u64, |product, &size| product.checked_mul(size as u64))
            .and_then(|elements| elements.checked_mul(tensor.dtype.bits().unwrap_or(1)))
            .ok_or_else(|| format!("tensor's shape overflows: {name}"))?;
        let bytes = tensor.end - tensor.begin;
        let agrees = match tensor.dtype {
            Dtype::Unknown => true,
            _ => bits % 8 == 0 && bits / 8 == bytes,
        };
        if !agrees {
            return Err(format!(
                "tensor of {bytes} bytes does not match {} {:?}: {name}",
                tensor.dtype_name, tensor.shape
            ));
        }
    }
    let mut order: Vec<&RawTensor> = raw.iter().collect();
    order.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    if let Some(pair) = order.windows(2).find(|pair| pair[0].name == pair[1].name) {
        return Err(format!("tensor stands twice: {}", Escaped(&pair[0].name)));
    }
    order.sort_unstable_by_key(|tensor| (tensor.begin, tensor.end));
    if let Some(last) = order.iter().max_by_key(|tensor| tensor.end)
        && last.end > data_bytes
    {
        return Err(format!(
            "file ends {} bytes before a tensor's end: {}",
            last.end - data_bytes,
            Escaped(&last.name)
        ));
    }
    let mut end = 0;
    for tensor in order {
        let name = Escaped(&tensor.name);
        if tensor.begin < end {
            return Err(format!("tensor overlaps the one before it: {name}"));
        }
        if tensor.begin > end {
            return Err(format!(
                "{} bytes belong to no tensor, before: {name}",
                tensor.begin - end
            ));
        }
        end = tensor.end;
    }
    if end < data_bytes {
        return Err(format!(
            "bytes at the end of the file belong to no tensor: {}",
            data_bytes - end
        ));
    }
    Ok(raw
        .into_iter()
        .map(|tensor| TensorInfo {
            // Within the file's length, so neither sum overflows.
            begin: data_begin + tensor.begin,
            end: data_begin + tensor.end,
            unknown_dtype: (tensor.dtype == Dtype::Unknown)
                .then(|| tensor.dtype_name.into_boxed_str()),
            name: tensor.name,
            dtype: tensor.dtype,
            shape: tensor.shape,
        })
        .collect())
}

struct RawTensor {
    name: String,
    dtype: Dtype,
    dtype_name: String,
    shape: Vec<usize>,
    begin: u64,
    end: u64,
}

/// Reads the header's object; leaves the name of the entry that is wrong in `at`.
struct HeaderVisitor<'a> {
    at: &'a mut Option<String>,
}

impl<'de> Visitor<'de> for HeaderVisitor<'_> {
    type Value = (Vec<RawTensor>, BTreeMap<String, String>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut tensors = Vec::new();
        let mut metadata = None;
        while let Some(name) = map.next_key::<String>()? {
            if name == METADATA {
                let read =
                    map.next_value()
                        .and_then(|Metadata(read)| match metadata.replace(read) {
                            Some(_) => Err(A::Error::custom("name stands twice")),
                            None => Ok(()),
                        });
                read.inspect_err(|_| *self.at = Some(name))?;
            } else {
                match map.next_value::<Entry>() {
                    Ok(entry) => tensors.push(RawTensor {
                        name,
                        dtype: Dtype::from_name(&entry.dtype),
                        dtype_name: entry.dtype,
                        shape: entry.shape.0,
                        begin: entry.data_offsets.0,
                        end: entry.data_offsets.1,
                    }),
                    Err(error) => {
                        *self.at = Some(name);
                        return Err(error);
                    }
                }
            }
        }
        Ok((tensors, metadata.unwrap_or_default()))
    }
}

/// One tensor's entry. Fields that the format does not have are passed over, as every reader
/// does; a field that stands twice is refused.
#[derive(serde::Deserialize)]
struct Entry {
    dtype: String,
    shape: Shape,
    data_offsets: (u64, u64),
}

/// Dimensions, few enough.
struct Shape(Vec<usize>);

impl<'de> serde::Deserialize<'de> for Shape {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ShapeVisitor;

        impl<'de> Visitor<'de> for ShapeVisitor {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of dimensions")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Shape, A::Error> {
                let mut shape = Vec::new();
                while let Some(dimension) = list.next_element()? {
                    if shape.len() == MOST_DIMENSIONS {
                        return Err(A::Error::custom(format_args!(
                            "more than {MOST_DIMENSIONS} dimensions"
                        )));
                    }
                    shape.push(dimension);
                }
                Ok(Shape(shape))
            }
        }

        deserializer.deserialize_seq(ShapeVisitor)
    }
}

/// The writer's strings. The format knows nothing else here; `null` stands for none.
struct Metadata(BTreeMap<String, String>);

impl<'de> serde::Deserialize<'de> for Metadata {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MetadataVisitor;

        impl<'de> Visitor<'de> for MetadataVisitor {
            type Value = Metadata;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_unit<E>(self) -> Result<Metadata, E> {
                Ok(Metadata(BTreeMap::new()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
                let mut metadata = BTreeMap::new();
                while let Some((name, value)) = map.next_entry()? {
                    metadata.insert(name, value);
                }
                Ok(Metadata(metadata))
            }
        }

        deserializer.deserialize_any(MetadataVisitor)
    }
}
