//! Writing one safetensors file: the header first, then the tensors' bytes piece by piece.

use std::{
    collections::HashSet,
    fs::{File, OpenOptions},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};

use super::{
    Dtype,
    header::{METADATA, MOST_HEADER_BYTES, PREFIX_BYTES},
};
use crate::{
    error::{Error, Kind, Result},
    escape::{Escaped, EscapedPath},
};

/// The header is padded with spaces, so that the data begins at a multiple of this.
const ALIGNMENT: usize = 8;

/// A tensor that a file is to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewTensor {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
}

impl NewTensor {
    /// Elements; `None` when their number overflows.
    pub(crate) fn element_count(&self) -> Option<u64> {
        let mut dimensions = self.shape.iter();
        dimensions.try_fold(1u64, |product, &size| product.checked_mul(size as u64))
    }

    /// Bytes of the elements; `None` for a type of unknown size, a number that overflows, or
    /// elements that fill no whole bytes.
    pub(crate) fn byte_len(&self) -> Option<u64> {
        let bits = self.element_count()?.checked_mul(self.dtype.bits()?)?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }
}

/// A new file whose header is written, and whose tensors are filled in from their beginning to
/// their end, in any order among each other.
#[derive(Debug)]
pub(crate) struct Writer {
    path: PathBuf,
    file: File,
    places: Vec<Place>,
}

#[derive(Debug)]
struct Place {
    name: String,
    /// Where the next bytes go.
    at: u64,
    end: u64,
}

impl Writer {
    /// Creates a file of weights: [`Self::create_with`] with what mlx-lm and transformers look
    /// for.
    ///
    /// # Errors
    /// As [`Self::create_with`].
    pub(crate) fn create(path: &Path, tensors: &[NewTensor]) -> Result<Self> {
        Self::create_with(path, tensors, &json!({"format": "mlx"}), 0o666)
    }

    /// Creates `path`, which must not exist, for these tensors, with an object of strings as
    /// metadata. The data of wide elements comes first, so that every tensor is aligned to its
    /// elements.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] naming a tensor that cannot stand in a file or stands twice, and
    /// what the system reports.
    pub(crate) fn create_with(
        path: &Path,
        tensors: &[NewTensor],
        metadata: &Value,
        mode: u32,
    ) -> Result<Self> {
        let refuse = |what: &str, name: &str| {
            Error::new(Kind::InvalidArgument, format!("{what}: {}", Escaped(name)))
        };
        let mut names = HashSet::new();
        let mut lengths = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            if tensor.name == METADATA || !names.insert(&tensor.name) {
                return Err(refuse("a tensor's name is taken", &tensor.name));
            }
            let length = tensor.byte_len();
            lengths.push(length.ok_or_else(|| refuse("a tensor has no size", &tensor.name))?);
        }
        let mut order: Vec<usize> = (0..tensors.len()).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(tensors[index].dtype.bits()));
        let mut ranges = vec![(0, 0); tensors.len()];
        let mut end = 0u64;
        for index in order {
            let begin = end;
            end = begin
                .checked_add(lengths[index])
                .ok_or_else(|| refuse("a file would be too large", &tensors[index].name))?;
            ranges[index] = (begin, end);
        }
        let header = header(tensors, &ranges, metadata);
        if header.len() as u64 > MOST_HEADER_BYTES {
            return Err(Error::new(
                Kind::InvalidArgument,
                format!("too many tensors for one file: {}", tensors.len()),
            ));
        }
        let data_begin = PREFIX_BYTES + header.len() as u64;
        let io = |error| Error::io(EscapedPath(path), error);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(path)
            .map_err(io)?;
        let prefix = (header.len() as u64).to_le_bytes();
        file.write_all_at(&[&prefix, header.as_slice()].concat(), 0)
            .map_err(io)?;
        let places = tensors
            .iter()
            .zip(ranges)
            .map(|(tensor, (begin, end))| Place {
                name: tensor.name.clone(),
                at: data_begin + begin,
                end: data_begin + end,
            });
        Ok(Self {
            path: path.to_owned(),
            file,
            places: places.collect(),
        })
    }

    /// Writes the next bytes of the tensor at `index` of the list.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] for more bytes than it has, and what the system reports.
    pub(crate) fn append(&mut self, index: usize, bytes: &[u8]) -> Result<()> {
        let place = &mut self.places[index];
        let length = bytes.len() as u64;
        if length > place.end - place.at {
            return Err(Error::new(
                Kind::InvalidArgument,
                format!("more bytes than a tensor has: {}", Escaped(&place.name)),
            ));
        }
        self.file
            .write_all_at(bytes, place.at)
            .map_err(|error| Error::io(EscapedPath(&self.path), error))?;
        place.at += length;
        Ok(())
    }

    /// Whether every tensor is there.
    pub(crate) fn is_complete(&self) -> bool {
        self.places.iter().all(|place| place.at == place.end)
    }

    /// Waits until everything is on the disk.
    ///
    /// # Errors
    /// [`Kind::InvalidArgument`] naming a tensor that is incomplete, and what the system reports.
    pub(crate) fn finish(self) -> Result<()> {
        if let Some(place) = self.places.iter().find(|place| place.at < place.end) {
            return Err(Error::new(
                Kind::InvalidArgument,
                format!("a tensor is incomplete: {}", Escaped(&place.name)),
            ));
        }
        let synced = self.file.sync_all();
        synced.map_err(|error| Error::io(EscapedPath(&self.path), error))
    }
}

/// The JSON header, padded.
fn header(tensors: &[NewTensor], ranges: &[(u64, u64)], metadata: &Value) -> Vec<u8> {
    let mut entries = Map::new();
    entries.insert(METADATA.to_owned(), metadata.clone());
    for (tensor, (begin, end)) in tensors.iter().zip(ranges) {
        let entry = json!({
            "dtype": tensor.dtype.name(),
            "shape": tensor.shape,
            "data_offsets": [begin, end],
        });
        entries.insert(tensor.name.clone(), entry);
    }
    let mut header = Value::Object(entries).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(ALIGNMENT), b' ');
    header
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::safetensors::Shard;

    fn tensor(name: &str, dtype: Dtype, shape: &[usize]) -> NewTensor {
        NewTensor {
            name: name.into(),
            dtype,
            shape: shape.into(),
        }
    }

    /// Bytes that tell tensors apart.
    fn bytes_of(index: usize, tensor: &NewTensor) -> Vec<u8> {
        let length = tensor.byte_len().unwrap() as usize;
        (0..length).map(|at| (at * 7 + index * 31) as u8).collect()
    }

    #[test]
    fn what_is_written_is_read_by_us_and_by_the_reference_crate() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("%s%n.safetensors");
        let tensors = [
            tensor("a.scales", Dtype::U8, &[3, 1]),
            tensor("%s%n", Dtype::U32, &[2, 5]),
            tensor("empty", Dtype::F32, &[0, 4]),
            tensor("scalar", Dtype::F32, &[]),
            tensor("b", Dtype::BF16, &[7]),
        ];
        let mut writer = Writer::create(&path, &tensors).unwrap();
        // Two at once, in pieces.
        for half in 0..2 {
            for (index, tensor) in tensors.iter().enumerate() {
                let bytes = bytes_of(index, tensor);
                let (first, second) = bytes.split_at(bytes.len() / 2);
                assert!(!writer.is_complete());
                writer.append(index, [first, second][half]).unwrap();
            }
        }
        assert!(writer.is_complete());
        writer.finish().unwrap();

        let shard = Shard::open(&path).unwrap();
        let file = std::fs::read(&path).unwrap();
        let reference = safetensors::SafeTensors::deserialize(&file).unwrap();
        for (index, tensor) in tensors.iter().enumerate() {
            let info = shard.tensors().iter().find(|t| t.name == tensor.name);
            let info = info.unwrap();
            assert_eq!((info.dtype, &info.shape), (tensor.dtype, &tensor.shape));
            let element_bytes = tensor.dtype.bits().unwrap() / 8;
            assert_eq!(info.begin % element_bytes, 0, "{}", tensor.name);
            let mut read = vec![0; info.byte_len() as usize];
            shard.read_exact_at(info, &mut read).unwrap();
            assert_eq!(read, bytes_of(index, tensor));
            let view = reference.tensor(&tensor.name).unwrap();
            assert_eq!(view.data(), read);
        }
        let (_, metadata) = safetensors::SafeTensors::read_metadata(&file).unwrap();
        let metadata = metadata.metadata().as_ref().unwrap();
        assert_eq!(metadata["format"], "mlx");
    }

    #[test]
    fn a_file_is_never_written_over_nor_left_incomplete() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.safetensors");
        let tensors = [tensor("a", Dtype::U8, &[4])];
        let mut writer = Writer::create(&path, &tensors).unwrap();
        assert_eq!(
            Writer::create(&path, &tensors).unwrap_err().kind(),
            Kind::Io
        );
        writer.append(0, &[1, 2, 3]).unwrap();
        let error = writer.append(0, &[4, 5]).unwrap_err();
        assert_eq!(error.message(), "more bytes than a tensor has: a");
        let error = writer.finish().unwrap_err();
        assert_eq!(error.message(), "a tensor is incomplete: a");
    }

    #[test]
    fn tensors_that_cannot_stand_in_a_file_are_named() {
        let dir = tempfile::tempdir().unwrap();
        for (tensors, message) in [
            (
                vec![tensor(METADATA, Dtype::U8, &[1])],
                "a tensor's name is taken: __metadata__",
            ),
            (
                vec![
                    tensor("x\n", Dtype::U8, &[1]),
                    tensor("x\n", Dtype::U8, &[2]),
                ],
                "a tensor's name is taken: x\\n",
            ),
            (
                vec![tensor("x", Dtype::Unknown, &[1])],
                "a tensor has no size: x",
            ),
            (
                vec![tensor("x", Dtype::F4, &[3])],
                "a tensor has no size: x",
            ),
            (
                vec![tensor("x", Dtype::F32, &[usize::MAX, 2])],
                "a tensor has no size: x",
            ),
            (
                vec![
                    tensor("x", Dtype::U8, &[usize::MAX / 8]),
                    tensor("y", Dtype::F64, &[usize::MAX / 64]),
                    tensor("z", Dtype::F64, &[usize::MAX / 64]),
                    tensor("u", Dtype::F64, &[usize::MAX / 64]),
                    tensor("v", Dtype::F64, &[usize::MAX / 64]),
                    tensor("w", Dtype::F64, &[usize::MAX / 64]),
                    tensor("s", Dtype::F64, &[usize::MAX / 64]),
                    tensor("t", Dtype::F64, &[usize::MAX / 64]),
                    tensor("r", Dtype::F64, &[usize::MAX / 64]),
                ],
                "a file would be too large: x",
            ),
        ] {
            let path = dir.path().join("x.safetensors");
            let error = Writer::create(&path, &tensors).unwrap_err();
            assert_eq!(error.kind(), Kind::InvalidArgument);
            assert_eq!(error.message(), message);
            assert!(!path.exists());
        }
    }

    proptest! {
        #[test]
        fn any_list_of_tensors_comes_back(
            list in prop::collection::btree_map(
                ".{0,12}",
                (prop::sample::select(vec![Dtype::U8, Dtype::F16, Dtype::U32, Dtype::F64]),
                 prop::collection::vec(0usize..4, 0..4)),
                0..8,
            ),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("x.safetensors");
            let tensors: Vec<_> = list
                .iter()
                .map(|(name, (dtype, shape))| tensor(name, *dtype, shape))
                .collect();
            let mut writer = Writer::create(&path, &tensors).unwrap();
            for (index, tensor) in tensors.iter().enumerate() {
                writer.append(index, &bytes_of(index, tensor)).unwrap();
            }
            writer.finish().unwrap();
            let shard = Shard::open(&path).unwrap();
            prop_assert_eq!(shard.tensors().len(), tensors.len());
            for (index, (tensor, info)) in tensors.iter().zip(shard.tensors()).enumerate() {
                let mut read = vec![0; info.byte_len() as usize];
                shard.read_exact_at(info, &mut read).unwrap();
                prop_assert_eq!(read, bytes_of(index, tensor));
            }
        }
    }
}
