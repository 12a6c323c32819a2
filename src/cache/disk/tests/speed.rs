//! How fast it is:
//! `cargo test --release --lib cache::disk::tests::speed -- --ignored --nocapture --test-threads 1`
#![expect(clippy::print_stdout, reason = "measurements are printed")]

use std::{fs::File, os::unix::fs::FileExt as _, time::Instant};

use memmap2::MmapMut;

use super::*;

const ROUNDS: usize = 7;
const TOKENS: usize = 4096;

/// A model of 24 layers with 8 heads of 128 bf16 each: 400 MB.
fn large_layout() -> Layout {
    let tensor = |name: String| TensorLayout {
        name,
        dtype: Dtype::BF16,
        heads: 8,
        width: 128,
    };
    let names = (0..24).flat_map(|n| [format!("layers.{n}.keys"), format!("layers.{n}.values")]);
    names.map(tensor).collect()
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// Seconds to read the first `count` tokens, each tensor into fresh memory.
fn restore(disk: &Disk, tokens: &[u32], count: usize) -> f64 {
    let capacity = count.next_multiple_of(256);
    let start = Instant::now();
    let chain = disk.open_chain(&namespace(1), tokens, count).unwrap();
    for (index, tensor) in chain.layout().iter().enumerate() {
        let bytes = tensor.position_bytes() as usize * capacity;
        let mut memory = MmapMut::map_anon(bytes).unwrap();
        chain.read(index, &mut memory, capacity).unwrap();
    }
    start.elapsed().as_secs_f64()
}

/// Seconds to read files by position, a piece of a tensor's size at a time, into fresh memory.
fn plain_reads(files: &[PathBuf]) -> f64 {
    let start = Instant::now();
    for path in files {
        let file = File::open(path).unwrap();
        let bytes = file.metadata().unwrap().len() as usize;
        let piece = bytes / large_layout().len();
        for offset in (0..bytes).step_by(piece) {
            let mut memory = MmapMut::map_anon(piece.min(bytes - offset)).unwrap();
            file.read_exact_at(&mut memory, offset as u64).unwrap();
        }
    }
    start.elapsed().as_secs_f64()
}

#[test]
#[ignore = "a measurement"]
fn restoring_beside_plain_reads() {
    let layout = large_layout();
    println!("files | used tokens | verified | plain reads | not verified");
    for (file_count, count) in [(1, TOKENS), (8, TOKENS), (64, TOKENS), (1, TOKENS / 2)] {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::open(folder.path(), u64::MAX, true).unwrap();
        let tokens: Vec<u32> = (0..TOKENS as u32).collect();
        for end in (1..=file_count).map(|part| TOKENS * part / file_count) {
            let mut source = |index: usize, range: Range<usize>| {
                let bytes = layout[index].position_bytes() as usize * range.len();
                Ok(vec![index as u8; bytes])
            };
            let stored = disk.store(&namespace(1), &layout, &tokens[..end], &mut source);
            stored.unwrap();
        }
        let files = segment_files(folder.path());
        assert_eq!(files.len(), file_count);
        let unverified = Disk::open(folder.path(), u64::MAX, false).unwrap();
        let (mut ours, mut plain, mut without) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(restore(&disk, &tokens, count));
            plain.push(plain_reads(&files));
            without.push(restore(&unverified, &tokens, count));
        }
        let (ours, plain, without) = (median(ours), median(plain), median(without));
        let rate = |seconds: f64| disk.bytes() as f64 / seconds / 1e9;
        println!(
            "{file_count:>5} | {count:>11} | {:.2} GB/s | {:.2} GB/s | {:.2} GB/s: {:.2} and {:.2} of plain reads",
            rate(ours),
            rate(plain),
            rate(without),
            plain / ours,
            plain / without,
        );
    }
}

#[test]
#[ignore = "a measurement"]
fn looking_up_and_opening_with_many_files() {
    println!("files | look-up of 1,000 tokens | of 16,000 | opening | storing one more");
    for file_count in [100, 1_000, 10_000] {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::open(folder.path(), u64::MAX, true).unwrap();
        let long: Vec<u32> = (0..16_000).collect();
        store_nothing(&disk, &long[..1000]);
        store_nothing(&disk, &long);
        for number in 2..file_count {
            // Branches from all places.
            let mut tokens = long[..number * 7 % 15_000].to_vec();
            tokens.extend([1_000_000 + number as u32; 20]);
            store_nothing(&disk, &tokens);
        }
        let seconds = |work: &dyn Fn()| {
            let times = (0..ROUNDS).map(|_| {
                let start = Instant::now();
                work();
                start.elapsed().as_secs_f64()
            });
            median(times.collect())
        };
        let look_up = |tokens: &[u32]| {
            let time = seconds(&|| {
                for _ in 0..100 {
                    assert_eq!(disk.prefix(&namespace(1), tokens), tokens.len());
                }
            });
            time / 100.0 * 1e6
        };
        let opening = seconds(&|| drop(Disk::open(folder.path(), u64::MAX, true).unwrap()));
        let storing = seconds(&|| {
            let number = disk.facts().file_count as u32;
            store_nothing(&disk, &[2_000_000 + number; 20]);
        });
        println!(
            "{file_count:>5} | {:>6.1} us | {:>6.1} us | {:>7.1} ms | {:.2} ms",
            look_up(&long[..1000]),
            look_up(&long),
            opening * 1e3,
            storing * 1e3,
        );
    }
}

/// Stores rows of one byte under the names of a real model's tensors.
fn store_nothing(disk: &Disk, tokens: &[u32]) {
    let tensors = large_layout();
    let small = |tensor: &TensorLayout| TensorLayout {
        dtype: Dtype::U8,
        heads: 1,
        width: 1,
        ..tensor.clone()
    };
    let layout: Layout = tensors.iter().map(small).collect();
    let mut source = |_, range: Range<usize>| Ok(vec![1; range.len()]);
    let stored = disk.store(&namespace(1), &layout, tokens, &mut source);
    assert!(stored.unwrap() > 0);
}
