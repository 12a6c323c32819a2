//! The small real model.

use mlxb::DEFAULT_PREFILL_CHUNK;
use serde::Deserialize;

use crate::{
    greedy, load,
    oracle::{Case, Prompt, ask, real_model, scratch},
    report,
};

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

#[test]
fn the_golden_prompts_are_answered_as_recorded() {
    let model = load(&real_model("f32"));
    for row in golden() {
        let ours = greedy(&model, &row.prompt_ids, DEFAULT_PREFILL_CHUNK, row.greedy_ids.len());
        assert_eq!(ours, row.greedy_ids, "{}", row.prompt);
    }
}

/// mlx-lm and the library, one after the other, on the first `count` golden prompts.
fn answers_as_mlx_lm(form: &str, count: usize) {
    let folder = real_model(form);
    let prompts = golden()
        .into_iter()
        .take(count)
        .map(|row| Prompt {
            ids: row.prompt_ids,
            chunk: DEFAULT_PREFILL_CHUNK,
        })
        .collect();
    let case = Case {
        name: form.to_owned(),
        folder: folder.clone(),
        prompts,
        tokens: 32,
    };
    let answers = ask(&[case], &scratch(form));
    let model = load(&folder);
    for prompt in answers.iter().flat_map(|answer| &answer.prompts) {
        let logits = model.logits(&prompt.ids).unwrap();
        assert_eq!(logits, prompt.logits, "logits after {:?}", prompt.ids);
        // mlx-lm's generate_step does not end at the end token; the library does.
        let ours = greedy(&model, &prompt.ids, prompt.chunk, prompt.greedy.len());
        assert_eq!(ours, prompt.greedy[..ours.len()], "after {:?}", prompt.ids);
        let ended = ours.last().is_some_and(|id| model.info().eos_tokens.contains(id));
        assert!(ended || ours.len() == prompt.greedy.len());
        report(format_args!("{form}: {} ids equal", ours.len()));
    }
}

#[test]
fn f32_answers_as_mlx_lm() {
    answers_as_mlx_lm("f32", 12);
}

#[test]
fn bf16_answers_as_mlx_lm() {
    answers_as_mlx_lm("bf16", 3);
}

#[test]
fn four_bits_answer_as_mlx_lm() {
    answers_as_mlx_lm("mlx4", 2);
}
