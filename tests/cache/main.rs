//! The prompt cache: what is found again is what was there, and nothing else ever is.
//!
//! Faults that users of other caches have met, and where the right value is tested:
//!
//! | report | fault | test |
//! |---|---|---|
//! | mlx-lm#1215, Rapid-MLX#994 | a prompt again: nothing is run, or its last token twice | `prefixes::the_same_prompt_again_runs_one_token_and_says_the_same` |
//! | vllm-mlx#311, cotabby#750 | tokens and state of different lengths, as after a cancel | `prefixes::a_cancelled_answer_leaves_a_state_that_its_tokens_match`, and `State::new` refuses them |
//! | claude-code-local#46, ollama#18267 | lengths rounded to buffers or chunks | `prefixes::what_two_prompts_share_is_reused_to_the_token_whatever_the_chunks` |
//! | mlx-lm#1494 | only the first layer was asked how far it can go back | `cache::policy`: the least able layer decides |
//! | mlc-llm#3179, mlx-lm#1042 | the answer comes back in other tokens, or without its thoughts | `prefixes::an_answer_that_comes_back_in_other_tokens_is_reused_up_to_there` |
//! | mlx-lm#1776 | one model's use spoils another's state | `sharing::models_of_one_configuration_never_share` |
//! | maclocal-api#46 | a state comes back without its offset | `disk::memory_forked_and_restored_states_are_equal_to_the_bit` |
//! | vllm-mlx#443 | entries are not written at the end | `disk::closing_writes_what_is_not_written_yet` |
//! | mlx-lm#1077 | a short rest keeps a long buffer alive | `model::layer_cache`: what is left is copied out |
//! | mlx-lm#1118, #1726 | the cap is not passed on, or misread | `sharing::the_cap_holds_after_every_put_and_the_hook_sees_who_goes`; the interface has numbers only |
//! | LMCache#1116 | a beginning goes before what continues it | `cache::shelf`: a used entry refreshes its prefixes |
//! | mlx-engine#310 | one failed restore spoils all later requests | `disk::damage_is_a_miss_and_the_next_request_is_served` |
//! | vllm#42125, vllm#44701 | names that run together, or stand for changed files | `sharing::namespaces_never_share`, `model::identity` |
//! | Rapid-MLX#187, LMCache#4991, #207 | half written files are found | `cache::disk`: faults at every step, kills, readers beside writers |
//! | omlx#2115 | files of other versions are not counted | `cache::disk`: the cap |
//! | llama.cpp#26676 | restored, but not used | `disk::closing_writes_what_is_not_written_yet` |
//! | llama.cpp#14434 | a state of nothing | `prefixes::a_state_without_tokens_is_no_entry` |
//! | ollama#16860 | the answer depends on what was asked before | `real::memory_fork_disk_and_another_process_give_the_same_bits` |
//! | omlx#1437 | what is not computed yet is read by another thread | `disk::a_hundred_states_are_written_while_others_decode` |
//! | mlx-bun | a restore leaks its memory, or takes it twice | `tests/concurrency`: a hundred restores, and one with a step |
//!
//! Windows, recurrent layers, quantized states and adapters do not exist in the library yet.
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
