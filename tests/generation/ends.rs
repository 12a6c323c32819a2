//! Each kind of end, and the state that it leaves.

use mlxb::{Cancel, Finish, Flow, GenerateOptions, Kind, Kv, Model, Sampling};

use crate::{
    run::{Told, run, run_while},
    tiny_model::{self, CONTEXT, END, VOCABULARY, byte},
};

const PROMPT: &[u32] = &[40, 41, 42, 43, 44];

/// At temperature 1, so that answers go everywhere, and without an end of their own.
fn endless(max_tokens: u64) -> GenerateOptions {
    let mut sampling = Sampling {
        temperature: 1.0,
        seed: Some(7),
        ..Sampling::default()
    };
    sampling.penalties.logit_bias = vec![(END, f32::NEG_INFINITY)];
    GenerateOptions {
        max_tokens: Some(max_tokens),
        sampling,
        ..GenerateOptions::default()
    }
}

/// The state holds the prompt and all of the answer but the last token, and going on with that
/// one gives what a run of the whole sequence gives.
fn check_state(model: &Model, kv: &Kv, before: &[u32], told: &Told) {
    let all = [before, &told.ids].concat();
    let (last, run_tokens) = all.split_last().unwrap();
    assert_eq!(kv.tokens().unwrap(), run_tokens);
    check_continues(model, kv, *last);
}

fn check_continues(model: &Model, kv: &Kv, next: u32) {
    let all = [&kv.tokens().unwrap()[..], &[next]].concat();
    let options = GenerateOptions {
        max_tokens: Some(12),
        ..GenerateOptions::default()
    };
    let (generated, continued) = run(model, Some(kv), &[next], &options);
    assert_eq!(generated.reused_tokens, all.len() - 1);
    assert_eq!(continued.prefill, [(0, 1), (1, 1)]);
    assert_eq!(continued.ids, run(model, None, &all, &options).1.ids);
}

#[test]
fn an_end_token_of_the_model_ends() {
    let model = tiny_model::load(1);
    let kv = Kv::new(&model);
    let mut options = endless(1000);
    options.sampling.penalties.logit_bias = vec![(END, 3.0)];
    let (generated, told) = run(&model, Some(&kv), PROMPT, &options);
    assert_eq!(generated.finish, Finish::Eos);
    assert_eq!(
        told.ids.iter().position(|&id| id == END),
        Some(told.ids.len() - 1)
    );
    assert!(!told.text.contains("<end>"), "{}", told.text);
    check_state(&model, &kv, PROMPT, &told);
}

#[test]
fn a_stop_token_ends_and_has_no_text() {
    let model = tiny_model::load(1);
    let (_, free) = run(&model, None, PROMPT, &endless(30));
    let stop = free.ids[20];
    let at = free.ids.iter().position(|&id| id == stop).unwrap();
    let kv = Kv::new(&model);
    let options = GenerateOptions {
        stop_tokens: vec![stop],
        ..endless(30)
    };
    let (generated, told) = run(&model, Some(&kv), PROMPT, &options);
    assert_eq!(generated.finish, Finish::Eos);
    assert_eq!(told.ids, free.ids[..=at]);
    assert_eq!(told.text, model.detokenize(&free.ids[..at], false).unwrap());
    check_state(&model, &kv, PROMPT, &told);
}

#[test]
fn the_number_of_tokens_ends() {
    let model = tiny_model::load(1);
    for count in [1, 2, 9, 300] {
        let kv = Kv::new(&model);
        let (generated, told) = run(&model, Some(&kv), PROMPT, &endless(count));
        assert_eq!(generated.finish, Finish::Length);
        assert_eq!(told.ids.len() as u64, count);
        assert_eq!(told.text, model.detokenize(&told.ids, false).unwrap());
        check_state(&model, &kv, PROMPT, &told);
    }
}

#[test]
fn no_tokens_at_all_run_the_prompt_but_for_its_last() {
    let model = tiny_model::load(1);
    let kv = Kv::new(&model);
    let (generated, told) = run(&model, Some(&kv), PROMPT, &endless(0));
    assert_eq!(generated.finish, Finish::Length);
    assert!(told.ids.is_empty() && told.text.is_empty());
    assert_eq!(kv.tokens().unwrap(), PROMPT[..4]);
    check_continues(&model, &kv, PROMPT[4]);
}

#[test]
fn a_stop_string_ends_and_is_named() {
    let model = tiny_model::load(1);
    let mut options = endless(40);
    // Letters alone, so that each token is a character.
    for id in 0..VOCABULARY as u32 {
        if !(byte(b'a')..=byte(b'z')).contains(&id) {
            options
                .sampling
                .penalties
                .logit_bias
                .push((id, f32::NEG_INFINITY));
        }
    }
    let (_, free) = run(&model, None, PROMPT, &options);
    assert_eq!(free.text.len(), 40);
    // Of four and of six tokens, and one that never comes.
    for length in [4, 6] {
        let stop = &free.text[20..20 + length];
        let at = free.text.find(stop).unwrap();
        let kv = Kv::new(&model);
        let options = GenerateOptions {
            stop: vec!["THE END".into(), stop.to_owned()],
            ..options.clone()
        };
        let (generated, told) = run(&model, Some(&kv), PROMPT, &options);
        assert_eq!(generated.finish, Finish::StopString(1));
        assert_eq!(told.text, free.text[..at]);
        assert_eq!(told.ids, free.ids[..at + length]);
        check_state(&model, &kv, PROMPT, &told);
    }
}

#[test]
fn the_callback_ends() {
    let model = tiny_model::load(1);
    let (_, free) = run(&model, None, PROMPT, &endless(30));
    for count in [1, 2, 11] {
        let kv = Kv::new(&model);
        let stop_at = |told: &Told| {
            if told.ids.len() == count {
                Flow::Stop
            } else {
                Flow::Continue
            }
        };
        let (generated, told) =
            run_while(&model, Some(&kv), PROMPT, &endless(30), stop_at).unwrap();
        assert_eq!(generated.finish, Finish::Caller);
        assert_eq!(told.ids, free.ids[..count]);
        check_state(&model, &kv, PROMPT, &told);
    }
}

#[test]
fn a_cancel_in_a_callback_is_the_last_thing_told() {
    let model = tiny_model::load(1);
    let (_, free) = run(&model, None, PROMPT, &endless(30));
    for count in [1, 2, 11] {
        let kv = Kv::new(&model);
        let cancel = Cancel::new();
        let options = GenerateOptions {
            cancel: Some(cancel.clone()),
            ..endless(30)
        };
        let mut cancelled_text = None;
        let (generated, told) = run_while(&model, Some(&kv), PROMPT, &options, |told| {
            assert!(!cancel.is_requested(), "told after the cancel: {told:?}");
            if told.ids.len() == count {
                cancel.request();
                cancelled_text = Some(told.text.clone());
            }
            Flow::Continue
        })
        .unwrap();
        assert_eq!(generated.finish, Finish::Cancelled);
        assert_eq!(told.ids, free.ids[..count]);
        assert_eq!(Some(told.text.clone()), cancelled_text);
        check_state(&model, &kv, PROMPT, &told);
    }
}

#[test]
fn a_cancel_before_the_start_runs_nothing_and_leaves_the_state() {
    let model = tiny_model::load(1);
    let kv = Kv::new(&model);
    let (_, told) = run(&model, Some(&kv), PROMPT, &endless(5));
    let before = kv.tokens().unwrap();
    let cancel = Cancel::new();
    cancel.request();
    let options = GenerateOptions {
        cancel: Some(cancel),
        ..endless(5)
    };
    let (generated, nothing) = run(&model, Some(&kv), &told.ids[4..], &options);
    assert_eq!(generated.finish, Finish::Cancelled);
    assert_eq!(nothing, Told::default());
    assert_eq!(kv.tokens().unwrap(), before);
    check_continues(&model, &kv, told.ids[4]);

    // And the state of no tokens.
    let kv = Kv::new(&model);
    run(&model, Some(&kv), PROMPT, &options);
    assert!(kv.tokens().unwrap().is_empty());
    check_continues(&model, &kv, 9);
}

#[test]
fn a_cancel_is_seen_within_a_chunk_of_the_prompt() {
    let model = tiny_model::load(1);
    let prompt: Vec<u32> = (0..8192).map(|n| 2 + n % 256).collect();
    let kv = Kv::new(&model);
    let cancel = Cancel::new();
    let options = GenerateOptions {
        cancel: Some(cancel.clone()),
        prefill_chunk: 512,
        ..endless(5)
    };
    let (generated, told) = run_while(&model, Some(&kv), &prompt, &options, |told| {
        if told.prefill.len() == 2 {
            cancel.request();
        }
        Flow::Continue
    })
    .unwrap();
    assert_eq!(generated.finish, Finish::Cancelled);
    assert_eq!(told.prefill, [(0, 8192), (512, 8192)]);
    let held = kv.tokens().unwrap();
    // The chunk told of, and the one that ran meanwhile.
    assert!([512, 1024, 1536].contains(&held.len()), "{}", held.len());
    assert_eq!(held, prompt[..held.len()]);
    check_continues(&model, &kv, prompt[held.len()]);
}

#[test]
fn an_error_of_the_arguments_leaves_the_state() {
    let model = tiny_model::load(1);
    let kv = Kv::new(&model);
    let (_, told) = run(&model, Some(&kv), PROMPT, &endless(5));
    let before = kv.tokens().unwrap();
    let refused = |prompt: &[u32], options: GenerateOptions| {
        let outcome = run_while(&model, Some(&kv), prompt, &options, |_| Flow::Continue);
        assert_eq!(kv.tokens().unwrap(), before);
        outcome.unwrap_err()
    };
    for (options, complaint) in [
        (
            GenerateOptions {
                stop_tokens: vec![VOCABULARY as u32],
                ..endless(5)
            },
            "a token id is not below the vocabulary's size 258: 258",
        ),
        (
            GenerateOptions {
                stop: vec![String::new()],
                ..endless(5)
            },
            "stop string is empty: number 0",
        ),
        (
            GenerateOptions {
                prefill_chunk: 0,
                ..endless(5)
            },
            "prefill_chunk must be at least 1: 0",
        ),
    ] {
        let error = refused(&[1], options);
        assert_eq!(
            (error.kind(), error.message()),
            (Kind::InvalidArgument, complaint)
        );
    }
    assert_eq!(refused(&[], endless(5)).kind(), Kind::InvalidArgument);
    assert_eq!(
        refused(&[1, 4_000_000], endless(5)).kind(),
        Kind::InvalidArgument
    );
    check_continues(&model, &kv, told.ids[4]);
}

#[test]
fn a_full_context_names_its_numbers() {
    let model = tiny_model::load(1);
    let prompt = vec![5; CONTEXT];
    let error = run_while(&model, None, &prompt, &endless(1), |_| Flow::Continue).unwrap_err();
    assert_eq!(error.kind(), Kind::ContextFull);
    assert_eq!(
        error.message(),
        "the prompt has 16384 tokens, which leaves no room in a context of 16384"
    );

    // The kv's tokens count, and the last token that fits is made.
    let kv = Kv::new(&model);
    run(&model, Some(&kv), &prompt[..CONTEXT - 2], &endless(0));
    let (generated, told) = run(&model, Some(&kv), &[5], &endless(1000));
    assert_eq!((generated.finish, told.ids.len()), (Finish::Length, 2));
    let held = kv.tokens().unwrap().len();
    assert_eq!(held, CONTEXT - 1);
    let outcome = run_while(&model, Some(&kv), &told.ids[1..], &endless(1), |_| {
        Flow::Continue
    });
    assert_eq!(
        outcome.unwrap_err().message(),
        "the prompt has 16384 tokens, which leaves no room in a context of 16384"
    );
}

#[test]
fn the_same_prompt_twice_runs_its_last_token_again() {
    let model = tiny_model::load(1);
    let kv = Kv::new(&model);
    let options = GenerateOptions {
        max_tokens: Some(20),
        ..GenerateOptions::default()
    };
    let (_, first) = run(&model, Some(&kv), PROMPT, &options);
    kv.trim(PROMPT.len() - 1).unwrap();
    let (generated, second) = run(&model, Some(&kv), &PROMPT[PROMPT.len() - 1..], &options);
    assert_eq!(generated.prompt_tokens - generated.reused_tokens, 1);
    assert_eq!(first.ids, second.ids);
}
