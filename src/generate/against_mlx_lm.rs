//! Filters, processors and draws against mlx-lm's own functions on random logits. What mlx-lm
//! gets wrong is not among the cases that the script makes: a top-p so small that its type cannot
//! tell it from 0, a top-k of the whole vocabulary, XTC with a threshold of 0. The tests of this
//! room say what is right there.

use std::{collections::HashMap, path::Path, process::Command};

use mlx_rs::{Array, Dtype as MlxDtype};
use serde_json::{Map, Value};

use super::{
    filters,
    penalties::{History, Penalties, Penalty, Processors},
    sampling::{Keys, Sampler, Sampling},
};
use crate::{
    engine::{Mlx, engine},
    safetensors::{Dtype, Shard},
};

const MOST_DIFFERENCE: f32 = 1e-6;

#[derive(Default)]
struct Count {
    values: usize,
    draws: usize,
    bits_differ: usize,
}

#[test]
fn filters_processors_and_draws_equal_mlx_lm() {
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(root.join("tools/python"))
        .arg("tests/parity/samplers.py")
        .arg(folder.path())
        .current_dir(root)
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let cases = std::fs::read(folder.path().join("samplers.json")).unwrap();
    let cases: Vec<Map<String, Value>> = serde_json::from_slice(&cases).unwrap();
    let shard = Shard::open(&folder.path().join("samplers.safetensors")).unwrap();
    let total = cases.len();
    let count = engine()
        .unwrap()
        .run(move |mlx| {
            let table = Table::new(&shard);
            let mut count = Count::default();
            for case in &cases {
                table.check(case, mlx, &mut count);
            }
            count
        })
        .unwrap();
    assert!(total > 1000 && count.values > 500 && count.draws > 500);
    report(total, &count);
}

#[expect(clippy::print_stderr, reason = "shown with --nocapture")]
fn report(total: usize, count: &Count) {
    eprintln!(
        "{total} cases: {} tensors within {MOST_DIFFERENCE}, {} of them not bit for bit; {} draws equal",
        count.values, count.bits_differ, count.draws
    );
}

struct Table<'a> {
    shard: &'a Shard,
    places: HashMap<&'a str, usize>,
}

impl<'a> Table<'a> {
    fn new(shard: &'a Shard) -> Self {
        let names = shard.tensors().iter().map(|tensor| tensor.name.as_str());
        Self {
            shard,
            places: names.zip(0..).collect(),
        }
    }

    fn tensor(&self, name: &Value, mlx: &Mlx) -> Array {
        let tensor = &self.shard.tensors()[self.places[name.as_str().unwrap()]];
        let mut bytes = vec![0; usize::try_from(tensor.byte_len()).unwrap()];
        self.shard.read_exact_at(tensor, &mut bytes).unwrap();
        let shape: Vec<i32> = tensor.shape.iter().map(|&n| n as i32).collect();
        let dtype = match tensor.dtype {
            Dtype::F32 => MlxDtype::Float32,
            Dtype::BF16 => MlxDtype::Bfloat16,
            other => panic!("a type that the script does not make: {other:?}"),
        };
        mlx.copy(&bytes, &shape, dtype)
    }

    fn check(&self, case: &Map<String, Value>, mlx: &Mlx, count: &mut Count) {
        let name = case["name"].as_str().unwrap();
        let given = self.tensor(&case["input"], mlx);
        let parameters = Parameters(case["parameters"].as_object().unwrap());
        let expect = |outcome: Array, count: &mut Count| {
            let expected = self.tensor(&case["output"], mlx);
            assert_eq!(outcome.dtype(), expected.dtype(), "{name}");
            let (ours, theirs) = (numbers(&outcome), numbers(&expected));
            compare(name, &ours, &theirs);
            count.values += 1;
            count.bits_differ += usize::from(ours != theirs);
        };
        match case["step"].as_str().unwrap() {
            "top_p" => expect(
                filters::keep_top_p(&given, parameters.number("top_p")).unwrap(),
                count,
            ),
            "min_p" => {
                let least = parameters.integer("min_tokens_to_keep") as i32;
                let min_p = parameters.number("min_p");
                expect(filters::keep_min_p(&given, min_p, least).unwrap(), count);
            }
            "top_k" => {
                let top_k = parameters.integer("top_k") as i32;
                expect(filters::keep_top_k(&given, top_k).unwrap(), count);
            }
            "xtc" => {
                let mut sampler = parameters.sampler();
                let spared = sampler.spared(given.dim(-1)).cloned();
                let outcome = filters::exclude_top_choices(
                    &given,
                    parameters.number("xtc_probability"),
                    parameters.number("xtc_threshold"),
                    spared.as_ref(),
                    &key(&case["draws"][0]["keys"][0]),
                );
                expect(outcome.unwrap(), count);
            }
            "processors" => {
                let history: Vec<u32> = parameters_of(&case["history"]);
                let (last, before) = history.split_last().unwrap();
                let pending = Array::from_slice(&[*last], &[1]);
                // Whether the host knows the last token makes no difference.
                for (known, pending) in [(&history[..], None), (before, Some(&pending))] {
                    let history = History {
                        known,
                        answer_start: 0,
                        pending,
                    };
                    let mut processors = Processors::new(parameters.penalties());
                    let outcome = processors.apply(given.clone(), &history);
                    expect(outcome.unwrap(), count);
                }
            }
            "chain" => {
                for draw in case["draws"].as_array().unwrap() {
                    let keys = draw["keys"].as_array().unwrap();
                    let keys = Keys {
                        xtc: key(&keys[0]),
                        draw: key(keys.last().unwrap()),
                    };
                    let drawn = parameters.sampler().choose(&given, &keys).unwrap();
                    let drawn = drawn.try_item_exact::<u32>().unwrap();
                    assert_eq!(u64::from(drawn), draw["token"], "{name}");
                    count.draws += 1;
                }
            }
            other => panic!("a step that is not known: {other}"),
        }
    }
}

fn compare(name: &str, ours: &[f32], theirs: &[f32]) {
    assert_eq!(ours.len(), theirs.len(), "{name}");
    for (id, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        assert_eq!(
            ours.is_finite(),
            theirs.is_finite(),
            "{name}: the mask at {id}"
        );
        assert!(
            ours == theirs || (ours - theirs).abs() <= MOST_DIFFERENCE,
            "{name}: {ours} and not {theirs} at {id}"
        );
    }
}

fn numbers(array: &Array) -> Vec<f32> {
    let array = array.as_dtype(MlxDtype::Float32).unwrap();
    array.contiguous().unwrap().to_vec_exact::<f32>().unwrap()
}

fn key(halves: &Value) -> Array {
    Array::from_slice(&parameters_of::<u32>(halves), &[2])
}

fn parameters_of<T: serde::de::DeserializeOwned>(value: &Value) -> Vec<T> {
    serde_json::from_value(value.clone()).unwrap()
}

/// Under mlx-lm's names.
struct Parameters<'a>(&'a Map<String, Value>);

impl Parameters<'_> {
    fn number_or(&self, name: &str, default: f32) -> f32 {
        self.0
            .get(name)
            .map_or(default, |value| value.as_f64().unwrap() as f32)
    }

    fn number(&self, name: &str) -> f32 {
        self.0[name].as_f64().unwrap() as f32
    }

    fn integer(&self, name: &str) -> u64 {
        self.0[name].as_u64().unwrap()
    }

    fn sampler(&self) -> Sampler {
        let integer = |name, default| self.0.get(name).map_or(default, |v| v.as_u64().unwrap());
        let sampling = Sampling {
            temperature: self.number_or("temp", 0.0),
            top_p: self.number_or("top_p", 1.0),
            min_p: self.number_or("min_p", 0.0),
            min_tokens_to_keep: integer("min_tokens_to_keep", 1) as u32,
            top_k: integer("top_k", 0) as u32,
            xtc_probability: self.number_or("xtc_probability", 0.0),
            xtc_threshold: self.number_or("xtc_threshold", 0.1),
            ..Sampling::default()
        };
        let spared = self.0.get("xtc_special_tokens").map(parameters_of);
        Sampler::new(sampling, spared.unwrap_or_default())
    }

    fn penalties(&self) -> Penalties {
        let penalty = |name: &str| {
            let value = self.0.get(&format!("{name}_penalty"))?.as_f64().unwrap() as f32;
            let context_size = self.0.get(&format!("{name}_context_size"));
            Some(Penalty {
                value,
                context_size: context_size.map_or(20, |size| size.as_u64().unwrap() as usize),
            })
        };
        let bias = self.0.get("logit_bias").and_then(Value::as_object);
        Penalties {
            logit_bias: bias
                .into_iter()
                .flatten()
                .map(|(id, bias)| (id.parse().unwrap(), bias.as_f64().unwrap() as f32))
                .collect(),
            repetition: penalty("repetition"),
            presence: penalty("presence"),
            frequency: penalty("frequency"),
        }
    }
}
