//! Finding by tokens, with layers of declared bytes: no MLX.

use std::{sync::Arc, time::Instant};

use crate::{
    median,
    namespace::Namespace,
    python,
    shelf::{Layers, Shelf},
    tokens,
};

const NAMESPACE: Namespace = Namespace([7; 32]);
const COUNTS: [u64; 3] = [100, 1000, 10_000];
const LENGTHS: [usize; 2] = [1000, 16_000];
const ROUNDS: usize = 301;

pub(crate) fn table() {
    println!("look-ups, µs (median); aim: under 20 and flat\n");
    println!(
        "{:>7} {:>7} {:>8} {:>10} {:>12} {:>13} {:>12}",
        "entries", "tokens", "peek", "take, put", "linear scan", "mlx-lm's trie", "index bytes"
    );
    for count in COUNTS {
        for length in LENGTHS {
            row(count, length);
        }
    }
    println!();
}

fn row(count: u64, length: usize) {
    // Half of them begin with one of ten prompts.
    let sequence = |number: u64| {
        let mut sequence = tokens(number + 1, length);
        if number.is_multiple_of(2) {
            let shared = tokens(1_000_000 + number / 2 % 10, length / 2);
            sequence[..length / 2].copy_from_slice(&shared);
        }
        sequence
    };
    let mut shelf = Shelf::new();
    let now = Instant::now();
    let mut distinct = 0;
    for number in 0..count {
        let layers = Layers {
            layers: Arc::new(number),
            bytes: 1000,
            trims_to: 0,
        };
        let sequence = sequence(number);
        let found = shelf.candidates(&NAMESPACE, &sequence);
        distinct += length - found.map(|fact| fact.common).max().unwrap_or(0);
        shelf.put(&NAMESPACE, &sequence, layers, now);
    }
    let index = shelf.index_bytes() as f64 / (distinct * size_of::<u32>()) as f64;
    let query = |round: usize| {
        let mut query = sequence(round as u64 * 7 % count);
        query.push(5);
        query
    };
    let (mut peeks, mut takes) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let query = query(round);
        let started = Instant::now();
        let fact = shelf.candidates(&NAMESPACE, &query).next();
        peeks.push(started.elapsed().as_secs_f64() * 1e6);
        let fact = fact.expect("it is there");
        assert_eq!(fact.common, length);
        let started = Instant::now();
        let taken = shelf.take(fact.place).expect("it is there");
        shelf.put(&NAMESPACE, &taken.tokens, taken.layers, now);
        takes.push(started.elapsed().as_secs_f64() * 1e6);
    }
    let scan = scan(count, length, sequence);
    let theirs = if count <= 1000 && length == LENGTHS[0] {
        python("trie.py", &[&count.to_string(), &length.to_string()])
    } else {
        "-".into()
    };
    println!(
        "{count:>7} {length:>7} {:>8.1} {:>10.1} {scan:>12} {theirs:>13} {index:>11.2}x",
        median(peeks),
        median(takes),
    );
}

/// Every entry compared with the prompt.
fn scan(count: u64, length: usize, sequence: impl Fn(u64) -> Vec<u32>) -> String {
    if count * length as u64 > 20_000_000 {
        return "-".into();
    }
    let all: Vec<Vec<u32>> = (0..count).map(sequence).collect();
    let times = (0..21).map(|round| {
        let query = &all[round * 7 % all.len()];
        let started = Instant::now();
        let best = all
            .iter()
            .map(|entry| entry.iter().zip(query).take_while(|(a, b)| a == b).count())
            .max();
        assert_eq!(best, Some(length));
        started.elapsed().as_secs_f64() * 1e6
    });
    format!("{:.1}", median(times.collect()))
}
