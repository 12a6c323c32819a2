//! Storing and restoring, with bytes that tell whose they are.

mod basics;
mod cap;
mod corruption;
mod crash;
pub(super) mod faults;
mod full;
mod merging;
mod model;
mod readers;
mod shared;
mod speed;

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{Disk, Layout, TensorLayout, lock};
use crate::{cache::namespace::Namespace, error::Result, safetensors::Dtype};

const AMPLE: u64 = 1 << 30;

/// Tensors whose rows have several sizes, one of them odd.
fn layout() -> Layout {
    let tensor = |name: &str, dtype, heads, width| TensorLayout {
        name: name.to_owned(),
        dtype,
        heads,
        width,
    };
    Arc::new([
        tensor("layers.0.keys", Dtype::BF16, 2, 4),
        tensor("layers.0.values", Dtype::F32, 3, 5),
        tensor("layers.1.keys", Dtype::U8, 1, 7),
    ])
}

fn namespace(number: u8) -> Namespace {
    Namespace([number; 32])
}

/// Bytes \[heads, positions, width\] that depend on the namespace, the tensor, and all tokens up
/// to each position, as real KV does.
fn rows(
    namespace: &Namespace,
    layout: &Layout,
    tokens: &[u32],
    index: usize,
    range: Range<usize>,
) -> Vec<u8> {
    let mut hash = xxh3_64(&namespace.0);
    let mut states = Vec::with_capacity(tokens.len());
    for token in tokens {
        hash = xxh3_64_with_seed(&token.to_le_bytes(), hash);
        states.push(hash);
    }
    let tensor = &layout[index];
    let mut bytes = Vec::new();
    for head in 0..tensor.heads {
        for state in &states[range.clone()] {
            let mut row = Vec::new();
            while row.len() < tensor.row_bytes() {
                let seed = (index * 1000 + head * 10 + row.len()) as u64;
                row.extend(xxh3_64_with_seed(&state.to_le_bytes(), seed).to_le_bytes());
            }
            bytes.extend_from_slice(&row[..tensor.row_bytes()]);
        }
    }
    bytes
}

fn store(disk: &Disk, namespace: &Namespace, tokens: &[u32]) -> Result<u64> {
    let layout = layout();
    let mut source = |index, range| Ok(rows(namespace, &layout, tokens, index, range));
    disk.store(namespace, &layout, tokens, &mut source)
}

/// Restores the first `count` tokens and compares every byte, and those around: `false` for a
/// miss. A wrong byte panics.
fn restores(disk: &Disk, namespace: &Namespace, tokens: &[u32], count: usize) -> bool {
    let Some(chain) = disk.open_chain(namespace, tokens, count) else {
        return false;
    };
    let layout = layout();
    assert_eq!(*chain.layout(), layout);
    assert_eq!(chain.token_count(), count);
    let capacity = count + 3;
    for (index, tensor) in layout.iter().enumerate() {
        let row_bytes = tensor.row_bytes();
        let mut read = vec![0xEE; tensor.heads * capacity * row_bytes];
        if chain.read(index, &mut read, capacity).is_err() {
            return false;
        }
        let expected = rows(namespace, &layout, tokens, index, 0..count);
        let heads = read.chunks(capacity * row_bytes);
        for (head, expected) in heads.zip(expected.chunks(count * row_bytes)) {
            let (used, slack) = head.split_at(count * row_bytes);
            assert!(used == expected, "wrong bytes of {}", tensor.name);
            assert!(slack.iter().all(|&byte| byte == 0xEE));
        }
    }
    true
}

/// Restores what is said to be there; answers how many tokens that was.
fn restored(disk: &Disk, namespace: &Namespace, tokens: &[u32]) -> usize {
    let count = disk.prefix(namespace, tokens);
    assert!(count == 0 || restores(disk, namespace, tokens, count));
    count
}

/// All files below a folder, links and pipes included.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => found.extend(files(&path)),
            Ok(_) => found.push(path),
            // Another process has removed it.
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
        }
    }
    found.sort();
    found
}

/// The segments' files below a folder.
fn segment_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = files(folder);
    found.retain(|path| path.extension().is_some_and(|e| e == "safetensors"));
    found
}

fn bytes_below(folder: &Path) -> u64 {
    let lengths = files(folder).into_iter();
    lengths
        .map(|path| fs::symlink_metadata(path).unwrap().len())
        .sum()
}

/// Nothing is in the folder but the lock and what the store knows of.
fn assert_tidy(disk: &Disk, folder: &Path) {
    let segments = segment_files(folder);
    assert_eq!(segments.len(), disk.facts().file_count);
    assert_eq!(bytes_below(folder), disk.bytes());
    let others = files(folder).len() - segments.len();
    assert!(others <= 1, "{:?}", files(folder));
}

/// A generator of numbers that a failing test can repeat.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most as u64) as usize
    }
}
