//! The real model: its answers are the same wherever their beginning comes from.

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
};

use mlxb::{Kv, LoadOptions, Model, Sampling};

use crate::{
    cached, difference, greedy, open,
    run::{Told, run},
    support::test_model,
};

/// The folder of the cache, for the other process.
const CACHE: &str = "MLXB_TEST_CACHE";
/// The file in there for what it says.
const ANSWER: &str = "answer";
const TOKENS: u64 = 64;
const TOP: u32 = 20;

fn prompts(model: &Model) -> (Vec<u32>, Vec<u32>) {
    let text = "The library keeps the state of each sequence that it has seen. ".repeat(12);
    let first = model.tokenizer().encode(&text, true).unwrap();
    let rest = model.tokenizer().encode("Why? Because", false).unwrap();
    let second = [&first[..], &rest[..]].concat();
    (first, second)
}

fn load() -> Model {
    Model::load(test_model("f32"), LoadOptions::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn options(mut options: mlxb::GenerateOptions) -> mlxb::GenerateOptions {
    options.sampling = Sampling {
        logprobs: Some(TOP),
        ..Sampling::default()
    };
    options
}

/// Ids and the bits of their log-probabilities, as text.
fn fingerprint(told: &Told) -> String {
    let steps = told.ids.iter().zip(&told.logprobs);
    steps
        .map(|(id, logprobs)| format!("{id}:{:08x} ", logprobs.chosen.to_bits()))
        .collect()
}

/// What the other process does.
#[test]
fn answer_from_disk() {
    let Ok(dir) = env::var(CACHE) else { return };
    let model = load();
    let (first, second) = prompts(&model);
    let cache = open(1 << 30, Some(Path::new(&dir)));
    let (generated, told) = run(&model, None, &second, &options(cached(TOKENS, &cache, "")));
    assert_eq!(generated.restored_tokens, first.len());
    fs::write(Path::new(&dir).join(ANSWER), fingerprint(&told)).unwrap();
}

#[test]
fn memory_fork_disk_and_another_process_give_the_same_bits() {
    let model = load();
    let (first, second) = prompts(&model);
    let kv = Kv::new(&model);
    run(&model, Some(&kv), &first, &options(greedy(1)));
    let fork = kv.fork().unwrap();
    let rest = &second[first.len()..];
    let (_, reference) = run(&model, Some(&kv), rest, &options(greedy(TOKENS)));
    let (_, forked) = run(&model, Some(&fork), rest, &options(greedy(TOKENS)));
    assert_eq!(fingerprint(&forked), fingerprint(&reference));

    let folder = tempfile::tempdir().unwrap();
    let cache = open(1 << 30, Some(folder.path()));
    run(&model, None, &first, &options(cached(1, &cache, "")));
    cache.flush().unwrap();
    // As it is now: the next answer will be written, too.
    let copy = tempfile::tempdir().unwrap();
    let copied = Command::new("cp")
        .arg("-r")
        .args([folder.path().join(".").as_path(), copy.path()])
        .status();
    assert!(copied.unwrap().success());
    let (generated, told) = run(&model, None, &second, &options(cached(TOKENS, &cache, "")));
    assert_eq!(generated.reused_tokens, first.len());
    assert_eq!(generated.restored_tokens, 0);
    assert_eq!(fingerprint(&told), fingerprint(&reference));
    drop(cache);

    let other = Command::new(env::current_exe().unwrap())
        .args(["--exact", "real::answer_from_disk", "--nocapture"])
        .env(CACHE, copy.path())
        .stdout(Stdio::null())
        .status();
    assert!(other.unwrap().success());
    let answer = fs::read_to_string(copy.path().join(ANSWER)).unwrap();
    assert_eq!(answer, fingerprint(&reference));

    // Computed at once: other sums, so the last bits differ.
    let (_, cold) = run(&model, None, &second, &options(greedy(TOKENS)));
    let margins = cold
        .logprobs
        .iter()
        .map(|step| step.top[0].1 - step.top[1].1);
    let sure = margins.take_while(|&margin| margin > 1e-3).count();
    assert_eq!(cold.ids[..sure], reference.ids[..sure]);
    assert!(sure > 20, "only {sure} tokens are beyond doubt");
    if cold.ids == reference.ids {
        for (cold, warm) in cold.logprobs.iter().zip(&reference.logprobs) {
            assert!((cold.chosen - warm.chosen).abs() < 1e-4);
        }
    }
    assert!(difference(&told, &reference) == 0.0);
}
