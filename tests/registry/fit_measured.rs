//! The estimate of what a model takes, against what a run of it took.

use std::{
    env,
    path::Path,
    process::{Command, Stdio},
};

use mlxb::{
    Flow, GenerateOptions, LoadOptions, Model, memory,
    registry::{FitOptions, fit},
};

const MODEL: &str = "MLXB_TEST_FIT_MODEL";
const TOKENS: &str = "MLXB_TEST_FIT_TOKENS";
const DECODED: usize = 8;

/// What a process of its own does: the peak counts from its start.
#[test]
fn worker() {
    let (Ok(model), Ok(tokens)) = (env::var(MODEL), env::var(TOKENS)) else {
        return;
    };
    let tokens: usize = tokens.parse().unwrap();
    let model = Model::load(Path::new(&model), LoadOptions::default()).unwrap();
    let prompt: Vec<u32> = (0..tokens - DECODED)
        .map(|at| (at * 37 % 40_000) as u32 + 100)
        .collect();
    let options = GenerateOptions {
        max_tokens: Some(DECODED as u64),
        ..GenerateOptions::default()
    };
    model
        .generate(None, &prompt, &options, &mut |_| Flow::Continue)
        .unwrap();
    let peak = memory::statistics().unwrap().peak_bytes;
    // The test harness prints its own lines on standard output.
    std::fs::write(env::var("MLXB_TEST_FIT_ANSWER").unwrap(), peak.to_string()).unwrap();
}

fn measured_peak(model: &str, tokens: u64) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let answer = folder.path().join("peak");
    let status = Command::new(env::current_exe().unwrap())
        .args(["--exact", "fit_measured::worker"])
        .env(MODEL, model)
        .env(TOKENS, tokens.to_string())
        .env("MLXB_TEST_FIT_ANSWER", &answer)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{model} {tokens}");
    std::fs::read_to_string(answer).unwrap().parse().unwrap()
}

#[test]
fn the_estimate_is_near_the_measured_peak() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut off = Vec::new();
    // MLX's CPU backend takes minutes for a prompt of packed weights.
    for (name, context_tokens) in [("f32", 256), ("f32", 2048)] {
        let made = Command::new(root.join("tools/test-model"))
            .arg(name)
            .output()
            .unwrap();
        let model = String::from_utf8(made.stdout).unwrap();
        let model = model.trim_end();
        let options = FitOptions {
            context_tokens,
            ..FitOptions::default()
        };
        let fit = fit(Path::new(model), &options).unwrap();
        let peak = measured_peak(model, context_tokens);
        let ratio = fit.total_bytes as f64 / peak as f64;
        let line = format!("{name} {context_tokens}: {ratio:.3} of {peak}, by {fit:?}");
        if !(0.85..=1.15).contains(&ratio) {
            off.push(line);
        }
    }
    assert!(off.is_empty(), "{off:#?}");
}
