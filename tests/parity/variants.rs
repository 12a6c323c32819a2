//! Every row of `make_models.py`.

use mlxb::{
    Cache, CacheOptions, CacheUse, DEFAULT_PREFILL_CHUNK, DiskOptions, Event, Flow,
    GenerateOptions, Kv, Logprobs, Model, Sampling,
};

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

/// Ids and log-probabilities after `prompt`, from a kv's state or a cache's.
fn told(model: &Model, kv: Option<&Kv>, prompt: &[u32], options: &GenerateOptions) -> Told {
    let mut told = (Vec::new(), 0);
    let generated = model
        .generate(kv, prompt, options, &mut |event| {
            if let Event::Token {
                id,
                logprobs: Some(logprobs),
            } = event
            {
                told.0.push((id, logprobs.clone()));
            }
            Flow::Continue
        })
        .unwrap_or_else(|error| panic!("{error}"));
    told.1 = generated.restored_tokens;
    told
}

type Told = (Vec<(u32, Logprobs)>, usize);

/// What differs when the beginning of a prompt comes from a fork, the cache's memory or its disk.
fn compare_states(answer: &Answer) -> Result<(), String> {
    let model = load(&answer.folder);
    let ids = some_ids(240, 0..320);
    let (first, rest) = ids.split_at(230);
    let options = |max_tokens, cache: Option<&Cache>| GenerateOptions {
        max_tokens: Some(max_tokens),
        sampling: Sampling {
            logprobs: Some(20),
            ..Sampling::default()
        },
        cache: cache.map(|cache| CacheUse {
            cache: cache.clone(),
            namespace: String::new(),
        }),
        ..GenerateOptions::default()
    };
    let tokens = TOKENS as u64;
    let kv = Kv::new(&model);
    told(&model, Some(&kv), first, &options(1, None));
    let fork = kv.fork().map_err(|error| error.to_string())?;
    let (reference, _) = told(&model, Some(&kv), rest, &options(tokens, None));
    let (forked, _) = told(&model, Some(&fork), rest, &options(tokens, None));
    let folder = scratch("states");
    let open = || {
        Cache::open(CacheOptions {
            disk: Some(DiskOptions::new(&folder)),
            ..CacheOptions::default()
        })
        .map_err(|error| error.to_string())
    };
    told(&model, None, first, &options(1, Some(&open()?)));
    let (restored, count) = told(&model, None, &ids, &options(tokens, Some(&open()?)));
    let cache = Cache::open(CacheOptions::default()).map_err(|error| error.to_string())?;
    told(&model, None, first, &options(1, Some(&cache)));
    let (remembered, _) = told(&model, None, &ids, &options(tokens, Some(&cache)));
    if count != first.len() {
        return Err(format!("{count} tokens were restored, not {}", first.len()));
    }
    for (way, told) in [("fork", forked), ("memory", remembered), ("disk", restored)] {
        if told != reference {
            return Err(format!("an answer from {way} differs"));
        }
    }
    Ok(())
}

/// Whether a row is as it should be, in words if not.
fn judge(answer: &Answer) -> Result<(), String> {
    compare_states(answer)?;
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
