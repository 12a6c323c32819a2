//! libmlxb against mlx-lm, on the same MLX: the same weights and the same ids must give the
//! same logits, bit for bit, and the same greedy tokens.
//!
//! `make_models.py` makes tiny random models with mlx-lm's own classes, `reference.py` runs
//! mlx-lm on them. `tools/python` prepares the Python for both, `tools/test-model` the real
//! model, when they are called first.

mod oracle;
mod real_model;
mod states;
mod tampering;
mod tensors;
mod variants;

use std::ops::Range;

use mlxb::{Event, Flow, GenerateOptions, LoadOptions, Model};

/// Loads a model with everything at its default.
fn load(folder: &std::path::Path) -> Model {
    Model::load(folder, LoadOptions::default())
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
}

/// The `count` most likely ids after `prompt`, one by one; fewer if the model ends its answer.
fn greedy(model: &Model, prompt: &[u32], prefill_chunk: usize, count: usize) -> Vec<u32> {
    let options = GenerateOptions {
        max_tokens: Some(count as u64),
        prefill_chunk,
        ..GenerateOptions::default()
    };
    let mut ids = Vec::new();
    model
        .generate(None, prompt, &options, &mut |event| {
            if let Event::Token { id, .. } = event {
                ids.push(id);
            }
            Flow::Continue
        })
        .expect("generating greedily from valid ids works");
    ids
}

/// Ids that look random and are the same every time.
fn some_ids(count: usize, below: Range<u32>) -> Vec<u32> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let width = u64::from(below.end - below.start);
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            below.start + (state % width) as u32
        })
        .collect()
}

/// Shows a line of the outcome with `--nocapture` and where a test fails.
#[expect(
    clippy::print_stdout,
    reason = "the comparison's outcome is what a reader wants to see"
)]
fn report(line: std::fmt::Arguments<'_>) {
    println!("{line}");
}
