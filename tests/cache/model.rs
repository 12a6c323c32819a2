//! Random use of both tiers, beside a plain list that is searched from end to end.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::Arc,
    time::Duration,
};

use mlxb::{Cache, CacheOptions, DiskOptions, Kv, Model};

use crate::{
    cold, greedy,
    run::{Told, run},
    tiny_model::{self, Random},
};

const NAMESPACES: [&str; 2] = ["one", "other"];
const STEPS: usize = 20_000;
/// Entries that fit into memory: all are of one size, for all are short.
const FIT: usize = 12;

/// What should be in the cache.
#[derive(Default)]
struct Oracle {
    /// Least recently used first.
    memory: Vec<Entry>,
    disk: HashSet<(usize, Vec<u32>)>,
}

#[derive(Clone)]
struct Entry {
    space: usize,
    tokens: Vec<u32>,
    /// Entries with one number share their memory.
    buffer: usize,
    /// Whether it is still to be written.
    is_due: bool,
}

/// What a take should give.
#[derive(Debug, PartialEq)]
enum Taken {
    Nothing,
    Whole(usize),
    Fork(usize),
    Restored,
}

fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Oracle {
    fn buffers(&self) -> usize {
        let numbers: HashSet<usize> = self.memory.iter().map(|entry| entry.buffer).collect();
        numbers.len()
    }

    fn put(&mut self, entry: Entry) {
        self.memory
            .retain(|other| other.space != entry.space || !entry.tokens.starts_with(&other.tokens));
        self.memory.push(entry);
        self.shrink(FIT, 1);
    }

    /// The last `spared` entries stay.
    fn shrink(&mut self, buffers: usize, spared: usize) {
        while self.buffers() > buffers && self.memory.len() > spared {
            let gone = self.memory.remove(0);
            self.write(&gone);
        }
    }

    fn write(&mut self, entry: &Entry) {
        for length in 1..=entry.tokens.len() {
            self.disk
                .insert((entry.space, entry.tokens[..length].to_vec()));
        }
    }

    fn write_due(&mut self) {
        for index in 0..self.memory.len() {
            if std::mem::take(&mut self.memory[index].is_due) {
                self.write(&self.memory[index].clone());
            }
        }
    }

    fn in_memory(&self, space: usize, reusable: &[u32]) -> usize {
        let here = self.memory.iter().filter(|entry| entry.space == space);
        here.map(|entry| common(&entry.tokens, reusable))
            .max()
            .unwrap_or(0)
    }

    fn on_disk(&self, space: usize, reusable: &[u32]) -> usize {
        let stored = |&length: &usize| self.disk.contains(&(space, reusable[..length].to_vec()));
        (1..=reusable.len()).rev().find(stored).unwrap_or(0)
    }

    fn holds(&self, space: usize, tokens: &[u32]) -> bool {
        let mut here = self.memory.iter().filter(|entry| entry.space == space);
        here.any(|entry| entry.tokens == tokens) || self.disk.contains(&(space, tokens.to_vec()))
    }

    /// What serves, and how many tokens of it.
    fn take(&mut self, space: usize, reusable: &[u32]) -> (Taken, usize) {
        let (memory, disk) = (
            self.in_memory(space, reusable),
            self.on_disk(space, reusable),
        );
        if memory.max(disk) == 0 {
            return (Taken::Nothing, 0);
        }
        if disk > memory {
            return (Taken::Restored, disk);
        }
        let prefix = &reusable[..memory];
        let is_here = |entry: &Entry| entry.space == space && entry.tokens.starts_with(prefix);
        let whole = self
            .memory
            .iter()
            .position(|entry| is_here(entry) && entry.tokens.len() == memory);
        if let Some(whole) = whole {
            return (Taken::Whole(self.memory.remove(whole).buffer), memory);
        }
        let donor = self.memory.iter().filter(|entry| is_here(entry));
        let donor = donor
            .min_by(|a, b| a.tokens.cmp(&b.tokens))
            .unwrap()
            .clone();
        // The donor and what it begins with become the most recently used, the shortest last.
        let (mut used, others): (Vec<Entry>, Vec<Entry>) = std::mem::take(&mut self.memory)
            .into_iter()
            .partition(|entry| entry.space == space && donor.tokens.starts_with(&entry.tokens));
        used.sort_by_key(|entry| std::cmp::Reverse(entry.tokens.len()));
        self.memory = [others, used].concat();
        (Taken::Fork(donor.buffer), memory)
    }
}

/// The cache with the model, and what was computed once.
struct Subject<'a> {
    model: &'a Model,
    dir: &'a Path,
    states: HashMap<Vec<u32>, (Arc<Kv>, usize)>,
    answers: HashMap<Vec<u32>, Told>,
    buffer_bytes: u64,
    next_buffer: usize,
}

impl Subject<'_> {
    fn open(&self) -> Cache {
        Cache::open(CacheOptions {
            memory_bytes: FIT as u64 * self.buffer_bytes,
            disk: Some(DiskOptions {
                // Written when it is asked for.
                write_after: Duration::from_secs(100_000),
                idle_after: None,
                ..DiskOptions::new(self.dir)
            }),
            ..CacheOptions::default()
        })
        .unwrap()
    }

    fn new_buffer(&mut self) -> usize {
        self.next_buffer += 1;
        self.next_buffer
    }

    fn state(&mut self, tokens: &[u32]) -> (Arc<Kv>, usize) {
        if let Some(known) = self.states.get(tokens) {
            return known.clone();
        }
        let kv = Arc::new(Kv::new(self.model));
        run(self.model, Some(&kv), tokens, &greedy(1));
        let state = (kv, self.new_buffer());
        self.states.insert(tokens.to_vec(), state.clone());
        state
    }

    /// What comes after `prompt` must be what comes without a cache.
    fn check_answer(&mut self, kv: &Kv, prompt: &[u32]) {
        let model = self.model;
        let expected = self
            .answers
            .entry(prompt.to_vec())
            .or_insert_with(|| cold(model, prompt, 2));
        let kept = kv.tokens().unwrap().len();
        let (_, told) = run(
            model,
            Some(&kv.fork().unwrap()),
            &prompt[kept..],
            &greedy(2),
        );
        assert!(crate::difference(&told, expected) < 1e-4);
    }
}

#[test]
fn twenty_thousand_random_steps_agree_with_a_plain_list() {
    let model = tiny_model::load(1);
    let folder = tempfile::tempdir().unwrap();
    let probe = Kv::new(&model);
    run(&model, Some(&probe), &[5, 6], &greedy(1));
    let mut subject = Subject {
        model: &model,
        dir: folder.path(),
        states: HashMap::new(),
        answers: HashMap::new(),
        buffer_bytes: probe.bytes().unwrap(),
        next_buffer: 0,
    };
    let mut oracle = Oracle::default();
    let mut cache = subject.open();
    let mut random = Random(7);
    let mut taken = HashMap::new();
    for step in 0..STEPS {
        let space = random.below(2) as usize;
        let name = NAMESPACES[space];
        let length = 1 + random.below(9) as usize;
        let tokens: Vec<u32> = (0..length).map(|_| 5 + random.below(2) as u32).collect();
        let reusable = &tokens[..length - 1];
        match random.below(100) {
            0..30 => {
                let (kv, buffer) = subject.state(&tokens);
                cache.put(name, &kv).unwrap();
                oracle.put(Entry {
                    space,
                    tokens,
                    buffer,
                    is_due: true,
                });
            }
            30..60 => {
                let (expected, count) = oracle.take(space, reusable);
                let kv = cache.take(&model, name, &tokens).unwrap();
                let held = kv.as_ref().map_or(0, |kv| kv.tokens().unwrap().len());
                assert_eq!(held, count, "step {step}: {expected:?}");
                let buffer = match &expected {
                    Taken::Nothing => None,
                    Taken::Whole(buffer) | Taken::Fork(buffer) => Some(*buffer),
                    Taken::Restored => Some(subject.new_buffer()),
                };
                *taken.entry(std::mem::discriminant(&expected)).or_insert(0) += 1;
                if let (Some(kv), Some(buffer)) = (kv, buffer) {
                    assert_eq!(kv.tokens().unwrap(), reusable[..count]);
                    if random.below(8) == 0 {
                        subject.check_answer(&kv, &tokens);
                    }
                    if random.below(2) == 0 {
                        cache.put(name, &kv).unwrap();
                        oracle.put(Entry {
                            space,
                            tokens: reusable[..count].to_vec(),
                            buffer,
                            is_due: true,
                        });
                    }
                }
            }
            60..80 => {
                let found = cache.peek(&model, name, &tokens).unwrap();
                assert_eq!(found.memory_prefix, oracle.in_memory(space, reusable));
                assert_eq!(found.disk_prefix, oracle.on_disk(space, reusable));
            }
            80..95 => {
                let found = cache.find_exact(&model, name, &tokens).unwrap();
                assert_eq!(found, oracle.holds(space, &tokens), "step {step}");
            }
            95 => {
                let fit = random.below(FIT as u64) as usize;
                cache.trim(fit as u64 * subject.buffer_bytes).unwrap();
                oracle.shrink(fit, 0);
            }
            96 => {
                cache.clear().unwrap();
                oracle.memory.clear();
            }
            97 => {
                cache.flush().unwrap();
                oracle.write_due();
            }
            98 => {
                drop(cache);
                cache = subject.open();
                oracle.write_due();
                oracle.memory.clear();
            }
            // Now and then all over, or everything is on disk some day.
            _ => {
                if random.below(4) == 0 {
                    cache.clear_disk().unwrap();
                    oracle.disk.clear();
                }
            }
        }
        while cache.statistics().unwrap().pending_writes > 0 {
            std::thread::yield_now();
        }
        let statistics = cache.statistics().unwrap();
        assert_eq!(
            statistics.entries,
            oracle.memory.len() as u64,
            "step {step}"
        );
        let bytes = oracle.buffers() as u64 * subject.buffer_bytes;
        assert_eq!(statistics.memory_bytes, bytes, "step {step}");
    }
    assert_eq!(taken.len(), 4, "each way to be served was met");
    assert!(
        taken.values().all(|&count| count > 100),
        "{:?}",
        taken.values()
    );
}
