//! The prompt cache: what is found again is what was there, and nothing else ever is.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod disk;
mod model;
mod prefixes;
mod real;
#[path = "../generation/run.rs"]
mod run;
mod scenarios;
mod sharing;
#[path = "../support/mod.rs"]
mod support;
#[path = "../generation/tiny_model.rs"]
#[allow(dead_code, reason = "each test program uses a part")]
mod tiny_model;

use std::path::Path;

use mlxb::{Cache, CacheOptions, CacheUse, DiskOptions, GenerateOptions, Model, Sampling};
use run::{Told, run};
use tiny_model::{END, Random, VOCABULARY};

/// A cache with so much memory, and with a folder where one is given.
fn open(memory_bytes: u64, dir: Option<&Path>) -> Cache {
    let options = CacheOptions {
        memory_bytes,
        disk: dir.map(DiskOptions::new),
        ..CacheOptions::default()
    };
    Cache::open(options).unwrap()
}

/// The likeliest tokens, with the log-probability of every token there is: equal bits here are
/// equal logits.
fn greedy(max_tokens: u64) -> GenerateOptions {
    let mut sampling = Sampling {
        logprobs: Some(VOCABULARY as u32),
        ..Sampling::default()
    };
    sampling.penalties.logit_bias = vec![(END, f32::NEG_INFINITY)];
    GenerateOptions {
        max_tokens: Some(max_tokens),
        sampling,
        ..GenerateOptions::default()
    }
}

/// The same with a cache.
fn cached(max_tokens: u64, cache: &Cache, namespace: &str) -> GenerateOptions {
    GenerateOptions {
        cache: Some(CacheUse {
            cache: cache.clone(),
            namespace: namespace.into(),
        }),
        ..greedy(max_tokens)
    }
}

/// `count` tokens that `seed` decides.
fn tokens(seed: u64, count: usize) -> Vec<u32> {
    let mut random = Random(seed);
    (0..count)
        .map(|_| 2 + random.below(VOCABULARY as u64 - 2) as u32)
        .collect()
}

/// What the model says without any cache.
fn cold(model: &Model, prompt: &[u32], max_tokens: u64) -> Told {
    run(model, None, prompt, &greedy(max_tokens)).1
}

/// The largest difference between two runs' log-probabilities, token by token.
fn difference(a: &Told, b: &Told) -> f32 {
    assert_eq!(a.ids, b.ids);
    let by_token = |told: &Told, step: usize| {
        let mut top = told.logprobs[step].top.clone();
        top.sort_by_key(|(id, _)| *id);
        top
    };
    let mut largest = 0_f32;
    for step in 0..a.ids.len() {
        for ((id, a), (other, b)) in by_token(a, step).into_iter().zip(by_token(b, step)) {
            assert_eq!(id, other);
            if a.is_finite() || b.is_finite() {
                largest = largest.max((a - b).abs());
            }
        }
    }
    largest
}
