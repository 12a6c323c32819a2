//! Every row of `make_models.py`.

use mlxb::DEFAULT_PREFILL_CHUNK;

use crate::{
    greedy, load,
    oracle::{Answer, Case, Prompt, ask, make_models, scratch},
    report, some_ids,
};

/// Greedy ids to compare after each prompt.
const TOKENS: usize = 64;

/// Rows whose f32 logits differ from mlx-lm's by up to [`TOLERANCE`], with the reason.
const NOT_BIT_EQUAL: [(&str, &str); 0] = [];
const TOLERANCE: f32 = 1e-5;

/// One token; a prompt whose answer makes the KV cache grow; several chunks.
fn prompts() -> Vec<Prompt> {
    let ids = some_ids(230, 0..320);
    let prompt = |ids: &[u32], chunk| Prompt {
        ids: ids.to_vec(),
        chunk,
    };
    vec![
        prompt(&ids[..1], DEFAULT_PREFILL_CHUNK),
        prompt(&ids, DEFAULT_PREFILL_CHUNK),
        prompt(&ids[100..141], 16),
    ]
}

/// What differs between our answer and mlx-lm's; if nothing but bits of the logits, the largest
/// difference between two of these, and None if not even a bit.
fn compare(answer: &Answer) -> Result<Option<f32>, String> {
    let model = load(&answer.folder);
    let mut largest = None;
    for prompt in &answer.prompts {
        let length = prompt.ids.len();
        if prompt.chunk == DEFAULT_PREFILL_CHUNK {
            let ours = model
                .logits(&prompt.ids)
                .map_err(|error| format!("no logits after {length} tokens: {error}"))?;
            if ours.len() != prompt.logits.len() {
                return Err(format!(
                    "{} logits, not {}",
                    ours.len(),
                    prompt.logits.len()
                ));
            }
            for (id, (ours, theirs)) in ours.iter().zip(&prompt.logits).enumerate() {
                if !ours.is_finite() || (ours - theirs).abs() > TOLERANCE {
                    return Err(format!(
                        "the logit of {id} after {length} tokens is {ours}, not {theirs}"
                    ));
                }
                if ours.to_bits() != theirs.to_bits() {
                    largest = Some((ours - theirs).abs().max(largest.unwrap_or(0.0)));
                }
            }
        }
        let ours = greedy(&model, &prompt.ids, prompt.chunk, prompt.greedy.len());
        if ours != prompt.greedy {
            let at = ours
                .iter()
                .zip(&prompt.greedy)
                .take_while(|(a, b)| a == b)
                .count();
            return Err(format!(
                "greedy token {at} of {} after {length} tokens in chunks of {} differs; mlx-lm's margin there is {:?}",
                ours.len(),
                prompt.chunk,
                prompt.margins.get(at)
            ));
        }
    }
    Ok(largest)
}

/// Whether a row is as it should be, in words if not.
fn judge(answer: &Answer) -> Result<(), String> {
    let reason = NOT_BIT_EQUAL.iter().find(|(name, _)| *name == answer.name);
    match (compare(answer)?, reason) {
        (None, None) => {
            report(format_args!(
                "{}: {} logits equal bit for bit",
                answer.name, answer.dtype
            ));
            Ok(())
        }
        (None, Some(_)) => Err("logits are equal after all: take it off the list".to_owned()),
        (Some(largest), None) => Err(format!("logits differ by {largest}")),
        (Some(largest), Some((_, reason))) => {
            report(format_args!(
                "{}: logits within {largest}: {reason}",
                answer.name
            ));
            Ok(())
        }
    }
}

#[test]
fn every_variant_answers_as_mlx_lm() {
    let scratch = scratch("variants");
    let cases: Vec<_> = make_models(&[], &scratch)
        .into_iter()
        .map(|(name, folder)| Case {
            name,
            folder,
            prompts: prompts(),
            tokens: TOKENS,
        })
        .collect();
    let answers = ask(&cases, &scratch);
    let wrong: Vec<_> = answers
        .iter()
        .filter_map(|answer| Some(format!("{}: {}", answer.name, judge(answer).err()?)))
        .collect();
    report(format_args!(
        "{} of {} variants equal mlx-lm",
        answers.len() - wrong.len(),
        answers.len()
    ));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// More than one chunk of the usual size.
#[test]
fn a_prompt_longer_than_a_chunk_answers_as_mlx_lm() {
    let scratch = scratch("long_prompt");
    let prompts = vec![Prompt {
        ids: some_ids(DEFAULT_PREFILL_CHUNK + 53, 0..320),
        chunk: DEFAULT_PREFILL_CHUNK,
    }];
    let cases: Vec<_> = make_models(&["llama_gqa", "llama_rope_llama3"], &scratch)
        .into_iter()
        .map(|(name, folder)| Case {
            name,
            folder,
            prompts: prompts.clone(),
            tokens: 8,
        })
        .collect();
    for answer in ask(&cases, &scratch) {
        judge(&answer).unwrap_or_else(|wrong| panic!("{}: {wrong}", answer.name));
    }
}
