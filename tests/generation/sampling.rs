//! What sampling does to whole generations.

use mlxb::{GenerateOptions, Kind, Kv, Logprobs, Penalty, Sampling};
use serde_json::json;

use crate::{
    run::run,
    tiny_model::{self, VOCABULARY},
};

fn options(sampling: Sampling, max_tokens: u64) -> GenerateOptions {
    GenerateOptions {
        max_tokens: Some(max_tokens),
        sampling,
        ..GenerateOptions::default()
    }
}

fn seeded(seed: Option<u64>) -> Sampling {
    Sampling {
        temperature: 1.0,
        seed,
        ..Sampling::default()
    }
}

#[test]
fn every_seed_is_a_seed_and_none_differs_each_time() {
    let model = tiny_model::load(2);
    let answer = |seed| {
        run(&model, None, &[9, 8, 7], &options(seeded(seed), 40))
            .1
            .ids
    };
    for seed in [0, 1, u64::MAX] {
        assert_eq!(answer(Some(seed)), answer(Some(seed)));
    }
    assert_ne!(answer(Some(0)), answer(Some(1)));
    assert_ne!(answer(None), answer(None));
    assert_ne!(answer(None), answer(Some(0)));
}

#[test]
fn a_biased_token_is_biased_at_every_step() {
    let model = tiny_model::load(2);
    let free = run(&model, None, &[9], &options(seeded(Some(3)), 50)).1.ids;
    let banned = free[0];
    for xtc_probability in [0.0, 1.0] {
        for bias in [-100.0, f32::NEG_INFINITY] {
            let mut sampling = Sampling {
                xtc_probability,
                ..seeded(Some(3))
            };
            sampling.penalties.logit_bias = vec![(banned, bias)];
            let (_, told) = run(&model, None, &[9], &options(sampling, 50));
            assert!(!told.ids.contains(&banned));
        }
    }
    let mut sampling = Sampling::default();
    sampling.penalties.logit_bias = vec![(banned, 1e4)];
    let (_, told) = run(&model, None, &[9], &options(sampling, 50));
    assert_eq!(told.ids, [banned; 50]);
}

#[test]
fn values_that_mean_nothing_are_refused_by_name() {
    let model = tiny_model::load(2);
    let biased = |id, bias| {
        let mut sampling = Sampling::default();
        sampling.penalties.logit_bias = vec![(id, bias)];
        sampling
    };
    let repetition = |value| {
        let mut sampling = Sampling::default();
        sampling.penalties.repetition = Some(Penalty {
            value,
            context_size: 20,
        });
        sampling
    };
    let base = Sampling::default;
    for (sampling, complaint) in [
        (
            biased(VOCABULARY as u32, 1.0),
            "logit_bias names an id that is not below the vocabulary's size 258: 258",
        ),
        (biased(5, f32::NAN), "logit_bias of token 5 is no bias: NaN"),
        (
            biased(5, f32::INFINITY),
            "logit_bias of token 5 is no bias: inf",
        ),
        (repetition(0.0), "repetition_penalty must be above 0: 0"),
        (
            Sampling {
                temperature: -0.5,
                ..base()
            },
            "temperature must be a finite number, at least 0: -0.5",
        ),
        (
            Sampling {
                temperature: f32::NAN,
                ..base()
            },
            "temperature must be a finite number, at least 0: NaN",
        ),
        (
            Sampling {
                top_p: 1.5,
                ..base()
            },
            "top_p must be between 0 and 1: 1.5",
        ),
        (
            Sampling {
                min_p: -0.1,
                ..base()
            },
            "min_p must be between 0 and 1: -0.1",
        ),
        (
            Sampling {
                xtc_threshold: 0.6,
                ..base()
            },
            "xtc_threshold must be between 0 and 0.5: 0.6",
        ),
        (
            Sampling {
                xtc_probability: 2.0,
                ..base()
            },
            "xtc_probability must be between 0 and 1: 2",
        ),
        (
            Sampling {
                min_tokens_to_keep: 0,
                ..base()
            },
            "min_tokens_to_keep must be at least 1: 0",
        ),
    ] {
        let outcome = model.generate(None, &[9], &options(sampling, 1), &mut |_| {
            panic!("nothing is told of a refused request")
        });
        let error = outcome.unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (Kind::InvalidArgument, complaint)
        );
    }
}

#[test]
fn any_top_k_and_a_top_p_of_nothing_mean_something() {
    let model = tiny_model::load(2);
    let answer = |sampling| run(&model, None, &[9], &options(sampling, 20)).1.ids;
    let greedy = answer(Sampling::default());
    let free = answer(seeded(Some(5)));
    for top_k in [0, VOCABULARY as u32, VOCABULARY as u32 + 5, u32::MAX] {
        assert_eq!(
            answer(Sampling {
                top_k,
                ..seeded(Some(5))
            }),
            free
        );
    }
    assert_eq!(
        answer(Sampling {
            top_k: 1,
            ..seeded(Some(5))
        }),
        greedy
    );
    for top_p in [0.0, 1e-8, f32::MIN_POSITIVE / 2.0] {
        assert_eq!(
            answer(Sampling {
                top_p,
                ..seeded(Some(5))
            }),
            greedy
        );
    }
    // A threshold of nothing drops nothing.
    let xtc = Sampling {
        xtc_probability: 1.0,
        xtc_threshold: 0.0,
        ..seeded(Some(5))
    };
    assert_eq!(answer(xtc), free);
}

#[test]
fn presence_and_frequency_count_the_answer_only() {
    let model = tiny_model::load(2);
    let greedy = run(&model, None, &[9], &options(Sampling::default(), 1))
        .1
        .ids[0];
    let punished = |prompt: &[u32], count| {
        let mut sampling = Sampling {
            logprobs: Some(VOCABULARY as u32),
            ..Sampling::default()
        };
        let penalty = |value| {
            Some(Penalty {
                value,
                context_size: 0,
            })
        };
        sampling.penalties.presence = penalty(50.0);
        sampling.penalties.frequency = penalty(50.0);
        run(&model, None, prompt, &options(sampling, count)).1
    };
    // It is in the prompt, and is not punished for that.
    let plain = run(&model, None, &[greedy, 9], &options(Sampling::default(), 1))
        .1
        .ids;
    assert_eq!(punished(&[greedy, 9], 1).ids, plain);
    // In the answer nothing comes twice while there is anything new.
    let mut ids = punished(&[9], 100).ids;
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 100);
}

#[test]
fn the_repetition_penalty_sees_the_tokens_of_a_reused_state() {
    let model = tiny_model::load(2);
    let mut sampling = Sampling::default();
    sampling.penalties.repetition = Some(Penalty {
        value: 1.7,
        context_size: 0,
    });
    let prompt: Vec<u32> = (20..60).collect();
    let whole = run(&model, None, &prompt, &options(sampling.clone(), 20))
        .1
        .ids;
    let kv = Kv::new(&model);
    run(
        &model,
        Some(&kv),
        &prompt[..30],
        &options(Sampling::default(), 0),
    );
    let held = kv.tokens().unwrap().len();
    let reused = run(
        &model,
        Some(&kv),
        &prompt[held..],
        &options(sampling.clone(), 20),
    )
    .1
    .ids;
    assert_eq!(whole, reused);
    // And it does something here.
    assert_ne!(
        whole,
        run(&model, None, &prompt, &options(Sampling::default(), 20))
            .1
            .ids
    );
}

#[test]
fn logprobs_are_finite_sorted_and_hold_the_chosen_one() {
    let model = tiny_model::load(2);
    let with = |count, temperature| {
        let sampling = Sampling {
            temperature,
            logprobs: Some(count),
            ..seeded(Some(11))
        };
        run(&model, None, &[9], &options(sampling, 30)).1
    };
    assert!(
        run(&model, None, &[9], &options(seeded(Some(11)), 30))
            .1
            .logprobs
            .is_empty()
    );
    for (count, temperature) in [(0, 1.0), (1, 0.0), (5, 1.0), (5, 0.0), (1000, 1.0)] {
        let told = with(count, temperature);
        assert_eq!(told.logprobs.len(), told.ids.len());
        for (id, Logprobs { chosen, top, .. }) in told.ids.iter().zip(&told.logprobs) {
            assert!(chosen.is_finite() && *chosen <= 0.0);
            assert_eq!(top.len(), VOCABULARY.min(count as usize));
            assert!(top.is_sorted_by(|a, b| a.1 > b.1 || (a.1 == b.1 && a.0 < b.0)));
            if let Some((_, own)) = top.iter().find(|(top, _)| top == id) {
                assert_eq!(own, chosen);
            }
            if let (0.0, Some(first)) = (temperature, top.first()) {
                assert_eq!(first, &(*id, *chosen));
            }
            if top.len() == VOCABULARY {
                let mass: f32 = top.iter().map(|(_, value)| value.exp()).sum();
                assert!((mass - 1.0).abs() < 1e-4, "{mass}");
            }
        }
    }
    // They do not depend on what the filters drop.
    let sampling = |top_k| Sampling {
        logprobs: Some(5),
        top_k,
        ..Sampling::default()
    };
    let greedy = with(5, 0.0);
    assert_eq!(
        run(&model, None, &[9], &options(sampling(1), 30))
            .1
            .logprobs,
        greedy.logprobs
    );
}

#[test]
fn impossible_tokens_are_not_among_the_likely_ones() {
    let model = tiny_model::load(2);
    let mut sampling = Sampling {
        logprobs: Some(10),
        ..seeded(Some(1))
    };
    let all_but = |kept: u32| {
        let ids = (kept..VOCABULARY as u32).map(|id| (id, f32::NEG_INFINITY));
        ids.collect::<Vec<_>>()
    };
    sampling.penalties.logit_bias = all_but(3);
    let told = run(&model, None, &[9], &options(sampling.clone(), 1)).1;
    assert_eq!(told.logprobs[0].top.len(), 3);
    // Nothing is possible: no number is, either.
    sampling.penalties.logit_bias = all_but(0);
    let told = run(&model, None, &[9], &options(sampling, 1)).1;
    assert_eq!(told.logprobs[0].chosen, Logprobs::LEAST);
    assert!(told.logprobs[0].top.is_empty());
}

#[test]
fn the_makers_settings_are_told_where_they_mean_to_sample() {
    let settings = json!({"do_sample": true, "temperature": 0.5, "top_p": 0.75, "top_k": 7,
        "min_p": 0.125, "repetition_penalty": 1.25});
    let sampling = tiny_model::load_with(2, &settings).default_sampling();
    let expected = Sampling {
        temperature: 0.5,
        top_p: 0.75,
        top_k: 7,
        min_p: 0.125,
        ..Sampling::default()
    };
    assert_eq!(sampling.penalties.repetition.unwrap().value, 1.25);
    assert_eq!(sampling.penalties.repetition.unwrap().context_size, 20);
    let without = Sampling {
        penalties: Sampling::default().penalties,
        ..sampling
    };
    assert_eq!(without, expected);
    // Without do_sample they would not sample.
    let greedy = tiny_model::load_with(2, &json!({"temperature": 0.5, "top_p": 0.5}));
    assert_eq!(greedy.default_sampling(), Sampling::default());
}
