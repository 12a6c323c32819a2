//! The weights of the target: in files of a bounded size, with an index.

use std::{collections::BTreeMap, ops::Range, path::Path};

use serde_json::{Value, json};

use super::{Quantized, auxiliary::write, config::pretty};
use crate::{
    error::Result,
    safetensors::{NewTensor, Writer},
};

/// The tensors of the target, filled in piece by piece.
pub(super) struct Output<'a> {
    dir: &'a Path,
    tensors: &'a [NewTensor],
    /// Which tensors each file holds.
    shards: Vec<Range<usize>>,
    /// By shard, those that are begun and not complete.
    open: BTreeMap<usize, Writer>,
}

impl<'a> Output<'a> {
    /// For files in `dir` that hold `most_bytes` of tensors at most, or a single larger one.
    pub(super) fn new(dir: &'a Path, tensors: &'a [NewTensor], most_bytes: u64) -> Self {
        let lengths = tensors.iter().map(|tensor| tensor.byte_len().unwrap_or(0));
        Self {
            dir,
            tensors,
            shards: split(lengths, most_bytes),
            open: BTreeMap::new(),
        }
    }

    /// Writes the next bytes of the tensor at `index`.
    ///
    /// # Errors
    /// What the system reports.
    pub(super) fn append(&mut self, index: usize, bytes: &[u8]) -> Result<()> {
        let shard = self.shards.partition_point(|shard| shard.end <= index);
        let range = self.shards[shard].clone();
        let writer = match self.open.entry(shard) {
            std::collections::btree_map::Entry::Occupied(open) => open.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => {
                let path = self.dir.join(name(shard, self.shards.len()));
                place.insert(Writer::create(&path, &self.tensors[range.clone()])?)
            }
        };
        writer.append(index - range.start, bytes)?;
        if writer.is_complete()
            && let Some(writer) = self.open.remove(&shard)
        {
            writer.finish()?;
        }
        Ok(())
    }

    /// Writes the index, once every tensor is there.
    ///
    /// # Errors
    /// [`crate::Kind::InvalidArgument`] naming a tensor that is not complete, and what the system
    /// reports.
    pub(super) fn finish(self, summary: &Quantized) -> Result<()> {
        for writer in self.open.into_values() {
            writer.finish()?;
        }
        let mut files: Vec<(&str, String)> = Vec::with_capacity(self.tensors.len());
        for (shard, range) in self.shards.iter().enumerate() {
            let file = name(shard, self.shards.len());
            let tensors = &self.tensors[range.clone()];
            files.extend(
                tensors
                    .iter()
                    .map(|tensor| (tensor.name.as_str(), file.clone())),
            );
        }
        files.sort_unstable();
        let index = json!({
            "metadata": {
                "total_size": summary.tensor_bytes,
                "total_parameters": summary.parameter_count,
            },
            "weight_map": files
                .into_iter()
                .map(|(tensor, file)| (tensor.to_owned(), Value::String(file)))
                .collect::<serde_json::Map<_, _>>(),
        });
        write(
            &self.dir.join("model.safetensors.index.json"),
            &pretty(&index),
        )
    }
}

/// The name of one of `count` files.
fn name(shard: usize, count: usize) -> String {
    if count == 1 {
        return "model.safetensors".to_owned();
    }
    format!("model-{:05}-of-{count:05}.safetensors", shard + 1)
}

/// Ranges of tensors of these lengths that lie in a file together.
fn split(lengths: impl Iterator<Item = u64>, most_bytes: u64) -> Vec<Range<usize>> {
    let mut shards: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0u64;
    for (index, length) in lengths.enumerate() {
        bytes = bytes.saturating_add(length);
        match shards.last_mut() {
            Some(shard) if bytes <= most_bytes => shard.end = index + 1,
            _ => {
                shards.push(index..index + 1);
                bytes = length;
            }
        }
    }
    shards
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_filled_up_to_the_bound() {
        for (lengths, most, expected) in [
            (&[][..], 10, vec![]),
            (&[4, 6, 1, 9], 10, vec![0..2, 2..4]),
            (&[4, 7, 4], 10, vec![0..1, 1..2, 2..3]),
            (&[11, 1, 30, 9, 1], 10, vec![0..1, 1..2, 2..3, 3..5]),
            (&[1, 2], 2, vec![0..1, 1..2]),
            (&[u64::MAX, 2], 10, vec![0..1, 1..2]),
            (&[1, 2], 0, vec![0..1, 1..2]),
        ] {
            assert_eq!(
                split(lengths.iter().copied(), most),
                expected,
                "{lengths:?}"
            );
        }
        let all = split([1, 2].into_iter(), u64::MAX);
        assert_eq!((all.len(), all[0].clone()), (1, 0..2));
        assert_eq!(name(0, 1), "model.safetensors");
        assert_eq!(name(1, 12), "model-00002-of-00012.safetensors");
    }
}
