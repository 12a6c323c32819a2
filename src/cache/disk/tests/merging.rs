//! Long conversations, and how much is written for them.

use super::*;
use crate::cache::disk::merge;

/// Bytes of the tensors of so many tokens.
fn kv_bytes(token_count: usize) -> u64 {
    let layout = wide_layout();
    let bytes = layout.iter().map(TensorLayout::position_bytes);
    bytes.sum::<u64>() * token_count as u64
}

/// As wide as a small model's, so that headers weigh what they weigh there.
fn wide_layout() -> Layout {
    let tensor = |name: String| TensorLayout {
        name,
        dtype: Dtype::BF16,
        heads: 2,
        width: 64,
    };
    let layers = 0..12;
    let names = layers.flat_map(|n| [format!("layers.{n}.keys"), format!("layers.{n}.values")]);
    names.map(tensor).collect()
}

fn store_wide(disk: &Disk, tokens: &[u32]) -> u64 {
    let layout = wide_layout();
    let mut source = |index: usize, range: Range<usize>| {
        let bytes = layout[index].position_bytes() as usize * range.len();
        Ok(vec![index as u8; bytes])
    };
    let stored = disk.store(&namespace(1), &layout, tokens, &mut source);
    stored.unwrap()
}

#[test]
fn forty_turns_of_five_conversations_write_what_is_new() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), AMPLE, true).unwrap();
    let (system, turns, turn) = (2000, 40, 60);
    let mut written = 0;
    for conversation in 0..5 {
        let mut tokens: Vec<u32> = (0..system).collect();
        for number in 0..turns {
            tokens.extend((0..turn).map(|n| 10_000 + conversation * 1000 + number * 7 + n));
            written += store_wide(&disk, &tokens);
        }
        assert_eq!(disk.prefix(&namespace(1), &tokens), tokens.len());
    }
    let unique = kv_bytes((system + 5 * turns * turn) as usize);
    let ratio = written as f64 / unique as f64;
    assert_eq!(written, disk.bytes());
    assert!(ratio > 1.0 && ratio <= 1.15, "{ratio}");
}

#[test]
fn a_chain_never_becomes_long_and_little_is_written_twice() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), AMPLE, true).unwrap();
    let namespace = namespace(1);
    let layout = layout();
    let mut tokens = Vec::new();
    let mut written = 0;
    for number in 0..1000 {
        tokens.extend([number, number * 3, 1]);
        let mut source = |index, range: Range<usize>| {
            written += if index == 0 { range.len() } else { 0 };
            Ok(rows(&namespace, &layout, &tokens, index, range))
        };
        let stored = disk.store(&namespace, &layout, &tokens, &mut source);
        assert!(stored.unwrap() > 0);
        let facts = disk.facts();
        assert!(facts.file_count <= merge::LONGEST_CHAIN);
        let found = (facts.token_count as usize, facts.entry_count);
        assert_eq!(found, (tokens.len(), 1));
    }
    assert!(written <= 2 * tokens.len(), "{written}");
    assert_eq!(restored(&disk, &namespace, &tokens), tokens.len());
    for count in (1..tokens.len()).step_by(97) {
        assert!(restores(&disk, &namespace, &tokens, count));
    }
    let again = Disk::open(folder.path(), AMPLE, true).unwrap();
    assert_eq!(restored(&again, &namespace, &tokens), tokens.len());
    assert_tidy(&again, folder.path());
}

/// The files behind a branch point stay, since the branch continues them.
#[test]
fn a_merge_leaves_what_others_continue() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), AMPLE, true).unwrap();
    let namespace = namespace(1);
    let turn = |count: u32| (0..3 * count).collect::<Vec<u32>>();
    for count in 1..=64 {
        store(&disk, &namespace, &turn(count)).unwrap();
    }
    // In the middle of the 20th file, and behind the 50th.
    let branches = [58, 150].map(|at| {
        let mut branch = turn(50);
        branch.truncate(at);
        branch.extend([9000, 9001]);
        branch
    });
    for branch in &branches {
        assert!(store(&disk, &namespace, branch).unwrap() > 0);
    }
    assert_eq!(disk.facts().file_count, 66);
    store(&disk, &namespace, &turn(65)).unwrap();
    // Of the chain of 64, those behind the 50th are gone.
    assert_eq!(disk.facts().file_count, 50 + 2 + 1);
    for disk in [&disk, &Disk::open(folder.path(), AMPLE, true).unwrap()] {
        for tokens in branches.iter().chain([&turn(65), &turn(30), &turn(64)]) {
            assert_eq!(restored(disk, &namespace, tokens), tokens.len());
        }
        assert_tidy(disk, folder.path());
    }
    // The way to the end is the short one.
    let way = disk.shared.index().way(&namespace, &turn(64));
    assert_eq!(way.segments.len(), 1);
}
