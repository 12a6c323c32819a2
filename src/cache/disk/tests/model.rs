//! Random use against the simplest of models: a table of what was stored.

use std::collections::HashMap;

use super::*;

const STEPS: usize = 3000;
const SEED: u64 = 0x5eed_0001;

/// All that was stored since the last clear.
#[derive(Default)]
struct Oracle(HashMap<Namespace, Vec<Vec<u32>>>);

impl Oracle {
    /// Tokens of the longest stored prefix, by comparing with everything.
    fn prefix(&self, namespace: &Namespace, tokens: &[u32]) -> usize {
        let stored = self.0.get(namespace).into_iter().flatten();
        let common = stored.map(|stored| {
            let pairs = stored.iter().zip(tokens);
            pairs.take_while(|(a, b)| a == b).count()
        });
        common.max().unwrap_or(0)
    }
}

fn random_tokens(random: &mut Random) -> Vec<u32> {
    let length = 1 + random.below(24);
    // Few tokens, so that sequences branch everywhere.
    (0..length)
        .map(|_| [5, 5, 5, 6, 4_000_000_000][random.below(5)])
        .collect()
}

/// Two stores on a directory, which are also opened again.
fn run(cap_bytes: u64) -> (usize, usize) {
    let folder = tempfile::tempdir().unwrap();
    let open = || Disk::open(folder.path(), cap_bytes, true).unwrap();
    let mut disks = [open(), open()];
    let mut oracle = Oracle::default();
    let mut random = Random(SEED);
    let (mut hits, mut gone) = (0, 0);
    for step in 0..STEPS {
        let which = random.below(2);
        let disk = &disks[which];
        let namespace = namespace(random.below(3) as u8);
        let tokens = random_tokens(&mut random);
        match random.below(100) {
            0 if step % 2 == 0 => {
                disk.clear().unwrap();
                oracle = Oracle::default();
            }
            0..4 => disks[which] = open(),
            4..50 => {
                store(disk, &namespace, &tokens).unwrap();
                assert_eq!(restored(disk, &namespace, &tokens), tokens.len());
                oracle.0.entry(namespace).or_default().push(tokens);
            }
            _ => {
                disk.refresh().unwrap();
                let expected = oracle.prefix(&namespace, &tokens);
                let found = restored(disk, &namespace, &tokens);
                assert!(found <= expected, "step {step}: {found} of {expected}");
                hits += usize::from(found > 0);
                gone += usize::from(found < expected);
                if found > 0 {
                    let count = 1 + random.below(found);
                    assert!(restores(disk, &namespace, &tokens, count));
                }
            }
        }
        assert!(bytes_below(folder.path()) <= cap_bytes, "step {step}");
        if step % 50 == 0 {
            disks[which].refresh().unwrap();
            assert_tidy(&disks[which], folder.path());
        }
    }
    (hits, gone)
}

#[test]
fn without_a_limit_it_holds_what_the_table_holds() {
    let (hits, gone) = run(u64::MAX);
    assert!(hits > STEPS / 4);
    assert_eq!(gone, 0);
}

#[test]
fn under_a_cap_it_holds_a_part_of_it_and_nothing_else() {
    let (hits, gone) = run(60_000);
    assert!(hits > STEPS / 10, "{hits}");
    assert!(gone > STEPS / 10, "{gone}");
}
