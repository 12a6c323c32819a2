//! Filters, penalties and draws on small distributions whose right outcome is known.

use mlx_rs::{Array, Dtype};

use super::{
    filters,
    penalties::{History, Penalties, Penalty, Processors},
    sampling::{Keys, Sampler, Sampling},
};
use crate::engine::engine;

fn on_engine(work: impl FnOnce() + Send + 'static) {
    engine().unwrap().run(move |_| work()).unwrap();
}

/// Logarithms of rows of probabilities.
fn logs(rows: &[&[f32]], dtype: Dtype) -> Array {
    let numbers: Vec<f32> = rows.concat().into_iter().map(f32::ln).collect();
    let shape = [rows.len() as i32, rows[0].len() as i32];
    Array::from_slice(&numbers, &shape).as_dtype(dtype).unwrap()
}

fn numbers(array: &Array) -> Vec<f32> {
    let array = array.as_dtype(Dtype::Float32).unwrap();
    array.contiguous().unwrap().to_vec_exact::<f32>().unwrap()
}

/// The ids that are left.
fn kept(array: &Array) -> Vec<usize> {
    let numbers = numbers(array).into_iter().enumerate();
    let finite = numbers.filter(|(_, number)| number.is_finite());
    finite.map(|(id, _)| id).collect()
}

fn keys(seed: u64) -> Keys {
    Keys::new(seed, 0).unwrap()
}

fn xtc(rows: &Array, probability: f32, threshold: f32, spared: &[bool]) -> Array {
    let spared = (!spared.is_empty()).then(|| Array::from_slice(spared, &[spared.len() as i32]));
    let key = &keys(0).xtc;
    filters::exclude_top_choices(rows, probability, threshold, spared.as_ref(), key).unwrap()
}

#[test]
fn the_most_likely_token_survives_any_top_p() {
    on_engine(|| {
        // Flat enough that the sum of many probabilities is inexact.
        let mut row = vec![1.0; 5000];
        row[1234] = 2.0;
        let total: f32 = row.iter().sum();
        row.iter_mut().for_each(|number| *number /= total);
        for (dtype, top_p) in [
            (Dtype::Float32, 1e-8),
            (Dtype::Float16, 1e-4),
            (Dtype::Bfloat16, 1e-3),
            (Dtype::Bfloat16, f32::MIN_POSITIVE),
        ] {
            let outcome = filters::keep_top_p(&logs(&[&row], dtype), top_p).unwrap();
            assert!(kept(&outcome).contains(&1234), "{dtype:?} {top_p}");
        }
        let peaked = logs(&[&[0.1, 0.7, 0.2]], Dtype::Float32);
        for (top_p, expected) in [
            (1e-9, &[1][..]),
            (0.69, &[1]),
            (0.75, &[1, 2]),
            (0.95, &[0, 1, 2]),
        ] {
            assert_eq!(
                kept(&filters::keep_top_p(&peaked, top_p).unwrap()),
                expected
            );
        }
    });
}

#[test]
fn xtc_keeps_the_least_of_the_likely_tokens_and_all_below() {
    on_engine(|| {
        let rows = logs(&[&[0.5, 0.3, 0.15, 0.05]], Dtype::Float32);
        assert_eq!(kept(&xtc(&rows, 1.0, 0.1, &[])), [2, 3]);
        assert_eq!(kept(&xtc(&rows, 1.0, 0.4, &[])), [0, 1, 2, 3]);
        assert_eq!(kept(&xtc(&rows, 0.0, 0.1, &[])), [0, 1, 2, 3]);
        let spared = [true, false, false, false];
        assert_eq!(kept(&xtc(&rows, 1.0, 0.1, &spared)), [0, 2, 3]);
    });
}

#[test]
fn an_xtc_threshold_of_0_drops_nothing() {
    on_engine(|| {
        let rows = logs(&[&[0.5, 0.3, 0.15, 0.05]], Dtype::Float32);
        let sampler = |xtc_threshold| {
            let sampling = Sampling {
                temperature: 1.0,
                xtc_probability: 1.0,
                xtc_threshold,
                ..Sampling::default()
            };
            Sampler::new(sampling, Vec::new())
        };
        let mut drawn = [0; 4];
        for seed in 0..200 {
            let token = sampler(0.0).choose(&rows, &keys(seed)).unwrap();
            drawn[token.try_item_exact::<u32>().unwrap() as usize] += 1;
            let token = sampler(0.1).choose(&rows, &keys(seed)).unwrap();
            assert!(token.try_item_exact::<u32>().unwrap() >= 2);
        }
        assert!(drawn[0] > 70 && drawn[1] > 30, "{drawn:?}");
    });
}

#[test]
fn each_row_is_filtered_by_itself() {
    on_engine(|| {
        let rows: [&[f32]; 3] = [
            &[0.5, 0.3, 0.15, 0.05],
            &[0.05, 0.05, 0.1, 0.8],
            &[0.25, 0.26, 0.24, 0.25],
        ];
        let filters: [fn(&Array) -> Array; 4] = [
            |rows| xtc(rows, 1.0, 0.1, &[]),
            |rows| filters::keep_top_p(rows, 0.6).unwrap(),
            |rows| filters::keep_min_p(rows, 0.4, 2).unwrap(),
            |rows| filters::keep_top_k(rows, 2).unwrap(),
        ];
        for filter in filters {
            let together = numbers(&filter(&logs(&rows, Dtype::Float32)));
            let alone = rows.map(|row| numbers(&filter(&logs(&[row], Dtype::Float32))));
            assert_eq!(together, alone.concat());
        }
    });
}

#[test]
fn min_p_keeps_as_many_as_asked_for() {
    on_engine(|| {
        let row = logs(&[&[0.02, 0.9, 0.05, 0.03]], Dtype::Float32);
        for (min_p, least, expected) in [
            (0.5, 1, &[1][..]),
            (0.5, 2, &[1, 2]),
            (0.5, 99, &[0, 1, 2, 3]),
            (0.04, 1, &[1, 2]),
            (1.0, 1, &[1]),
        ] {
            assert_eq!(
                kept(&filters::keep_min_p(&row, min_p, least).unwrap()),
                expected
            );
        }
    });
}

#[test]
fn a_top_k_of_none_or_all_filters_nothing() {
    on_engine(|| {
        let row = logs(&[&[0.1, 0.6, 0.3]], Dtype::Float32);
        let drawn = |top_k| {
            let sampling = Sampling {
                temperature: 1.0,
                top_k,
                ..Sampling::default()
            };
            let draw = |seed| {
                let mut sampler = Sampler::new(sampling.clone(), Vec::new());
                let token = sampler.choose(&row, &keys(seed)).unwrap();
                token.try_item_exact::<u32>().unwrap()
            };
            (0..64).map(draw).collect::<Vec<_>>()
        };
        for top_k in [3, 8, u32::MAX] {
            assert_eq!(drawn(top_k), drawn(0));
        }
        assert_eq!(drawn(1), [1; 64]);
        assert!(!drawn(2).contains(&0) && drawn(2).contains(&2));
    });
}

fn apply(penalties: Penalties, logits: &[f32], known: &[u32], answer_start: usize) -> Vec<f32> {
    let logits = Array::from_slice(logits, &[1, logits.len() as i32]);
    let history = History {
        known,
        answer_start,
        pending: None,
    };
    numbers(&Processors::new(penalties).apply(logits, &history).unwrap())
}

fn penalty(value: f32, context_size: usize) -> Option<Penalty> {
    Some(Penalty {
        value,
        context_size,
    })
}

#[test]
fn presence_and_frequency_leave_the_prompt_alone() {
    on_engine(|| {
        let both = || Penalties {
            presence: penalty(0.5, 20),
            frequency: penalty(0.25, 20),
            ..Penalties::default()
        };
        let logits = [1.0, 2.0, 3.0];
        // In the prompt, not in the answer.
        assert_eq!(apply(both(), &logits, &[1, 1, 2], 3), logits);
        // Twice in the answer.
        assert_eq!(
            apply(both(), &logits, &[2, 1, 1], 1),
            [1.0, 2.0 - (0.5 + 2.0 * 0.25), 3.0]
        );
    });
}

#[test]
fn the_repetition_penalty_looks_back_as_far_as_it_is_told() {
    on_engine(|| {
        // Token 1 is 25 back.
        let mut history = vec![0; 25];
        history[0] = 1;
        let with = |context_size, logit: f32| {
            let penalties = Penalties {
                repetition: penalty(1.5, context_size),
                ..Penalties::default()
            };
            apply(penalties, &[0.0, logit], &history, history.len())[1]
        };
        assert_eq!(with(20, -2.0), -2.0);
        assert_eq!(with(128, -2.0), -3.0);
        assert_eq!(with(0, -2.0), -3.0);
        assert!((with(128, 2.0) - 1.333_333_3).abs() < 1e-6);
    });
}

#[test]
fn neutral_penalties_change_nothing() {
    on_engine(|| {
        let neutral = Penalties {
            logit_bias: vec![(0, 0.0)],
            repetition: penalty(1.0, 0),
            presence: penalty(0.0, 0),
            frequency: penalty(0.0, 0),
        };
        assert_eq!(apply(neutral, &[-1.0, 2.5], &[0, 1, 1], 0), [-1.0, 2.5]);
    });
}

#[test]
fn a_bias_names_ids_and_the_last_of_equal_ids_adds_to_the_first() {
    on_engine(|| {
        let bias = Penalties {
            logit_bias: vec![(1, 2.0), (2, f32::NEG_INFINITY), (1, 0.5)],
            ..Penalties::default()
        };
        assert_eq!(
            apply(bias, &[1.0, 1.0, 1.0], &[], 0),
            [1.0, 3.5, f32::NEG_INFINITY]
        );
    });
}

#[test]
fn draws_follow_the_probabilities() {
    on_engine(|| {
        let row = logs(&[&[0.1, 0.6, 0.3]], Dtype::Float32);
        let share = |temperature: f32| {
            let mut drawn = [0_u32; 3];
            for seed in 0..2000 {
                let key = &keys(seed).draw;
                let token = filters::draw(&row, temperature, key).unwrap();
                drawn[token.try_item_exact::<u32>().unwrap() as usize] += 1;
            }
            drawn.map(|count| f64::from(count) / 2000.0)
        };
        let close = |share: [f64; 3], expected: [f64; 3]| {
            let pairs = share.iter().zip(&expected);
            pairs.fold(0.0_f64, |most, (a, b)| most.max((a - b).abs())) < 0.04
        };
        assert!(close(share(1.0), [0.1, 0.6, 0.3]), "{:?}", share(1.0));
        // p^2, normalised.
        let total = 0.01 + 0.36 + 0.09;
        assert!(close(
            share(0.5),
            [0.01 / total, 0.36 / total, 0.09 / total]
        ));
    });
}
