//! The small real model, in its three forms.

use std::thread;

use mlxb::DEFAULT_PREFILL_CHUNK;
use serde::Deserialize;

use crate::{
    greedy, load,
    oracle::{Case, Prompt, ask, real_model, scratch},
    report,
};

/// Greedy ids to compare after each prompt.
const TOKENS: usize = 32;

/// A row of the golden file: what mlx-lm answered in f32 when the file was made.
#[derive(Deserialize)]
struct Golden {
    prompt: String,
    prompt_ids: Vec<u32>,
    greedy_ids: Vec<u32>,
}

fn golden() -> Vec<Golden> {
    serde_json::from_str(include_str!("golden_smollm2_f32.json")).expect("its form is known")
}

/// The library and mlx-lm, at the same time, on some of the golden prompts: the library's
/// answers.
fn answers_as_mlx_lm(form: &'static str, rows: &[Golden], compare_logits: bool) -> Vec<Vec<u32>> {
    assert!(!rows.is_empty());
    let folder = real_model(form);
    let prompts = rows
        .iter()
        .map(|row| Prompt {
            ids: row.prompt_ids.clone(),
            chunk: DEFAULT_PREFILL_CHUNK,
        })
        .collect();
    let case = Case {
        name: form.to_owned(),
        folder: folder.clone(),
        prompts,
        tokens: TOKENS,
    };
    let theirs = thread::spawn(move || ask(&[case], &scratch(form)));
    let model = load(&folder);
    let ours: Vec<_> = rows
        .iter()
        .map(|row| greedy(&model, &row.prompt_ids, DEFAULT_PREFILL_CHUNK, TOKENS))
        .collect();
    let theirs = theirs.join().expect("mlx-lm answers");
    for ((row, ours), theirs) in rows.iter().zip(&ours).zip(&theirs[0].prompts) {
        // mlx-lm's generate_step goes on after an end token; the library does not.
        let ended = ours
            .last()
            .is_some_and(|id| model.info().eos_tokens.contains(id));
        assert!(ended || ours.len() == TOKENS, "{form}: {}", row.prompt);
        assert_eq!(
            ours[..],
            theirs.greedy[..ours.len()],
            "{form}: {}",
            row.prompt
        );
        if compare_logits {
            let logits = model.logits(&row.prompt_ids).expect("ids of the model");
            assert_eq!(logits, theirs.logits, "{form}: logits after {}", row.prompt);
        }
        report(format_args!(
            "{form}: {} ids equal: {}",
            ours.len(),
            row.prompt
        ));
    }
    ours
}

#[test]
fn f32_answers_as_mlx_lm_and_as_recorded() {
    let golden = golden();
    let ours = answers_as_mlx_lm("f32", &golden, true);
    for (row, ours) in golden.iter().zip(&ours) {
        let recorded = row.greedy_ids.len();
        assert_eq!(ours[..recorded], row.greedy_ids, "{}", row.prompt);
    }
    assert_eq!(ours.len(), 12);
}

#[test]
fn bf16_answers_as_mlx_lm() {
    let rows: Vec<_> = golden()
        .into_iter()
        .filter(|row| row.prompt.starts_with("What is"))
        .collect();
    answers_as_mlx_lm("bf16", &rows, true);
}

/// One short prompt: MLX's CPU kernels take seconds for a token with half-precision scales.
#[test]
fn four_bits_answer_as_mlx_lm() {
    let rows: Vec<_> = golden()
        .into_iter()
        .filter(|row| row.prompt == "Once upon a time")
        .collect();
    answers_as_mlx_lm("mlx4", &rows, false);
}
