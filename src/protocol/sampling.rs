//! The fields about sampling, which all protocols share: their own, and mlx-lm's beside them.

use std::collections::HashSet;

use serde_json::Value;

use super::{
    failure::Mistake,
    fields::{Object, mistake_in},
};
use crate::{
    error::Result,
    escape::Escaped,
    generate::{DEFAULT_PENALTY_CONTEXT, Penalty, Sampling},
};

/// What a request sets; None leaves the model's own setting.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SamplingFields {
    temperature: Option<f32>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    min_tokens_to_keep: Option<u32>,
    xtc_probability: Option<f32>,
    xtc_threshold: Option<f32>,
    top_k: Option<u32>,
    seed: Option<u64>,
    repetition: PenaltyFields,
    presence: PenaltyFields,
    frequency: PenaltyFields,
    logit_bias: Vec<(u32, f32)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct PenaltyFields {
    value: Option<f32>,
    context_size: Option<usize>,
}

impl SamplingFields {
    /// Reads them. What is out of range is refused before anything is generated.
    pub(super) fn read(request: &Object<'_>) -> Result<Self> {
        let small = |key: &str| -> Result<Option<u32>> {
            let Some(number) = request.count(key)? else {
                return Ok(None);
            };
            u32::try_from(number)
                .map(Some)
                .map_err(|_| mistake_in(Mistake::Value, "too large", key, number))
        };
        let penalty = |value: &str, context_size: &str| -> Result<PenaltyFields> {
            Ok(PenaltyFields {
                value: request.number(value)?,
                context_size: small(context_size)?.map(|size| size as usize),
            })
        };
        let fields = Self {
            temperature: request.number("temperature")?,
            top_p: request.number("top_p")?,
            min_p: request.number("min_p")?,
            min_tokens_to_keep: small("min_tokens_to_keep")?,
            xtc_probability: request.number("xtc_probability")?,
            xtc_threshold: request.number("xtc_threshold")?,
            top_k: top_k(request)?,
            seed: seed(request)?,
            repetition: penalty("repetition_penalty", "repetition_context_size")?,
            presence: penalty("presence_penalty", "presence_context_size")?,
            frequency: penalty("frequency_penalty", "frequency_context_size")?,
            logit_bias: logit_bias(request)?,
        };
        let ranges = [
            ("temperature", fields.temperature, 0.0..=f32::MAX),
            ("top_p", fields.top_p, 0.0..=1.0),
            ("min_p", fields.min_p, 0.0..=1.0),
            ("xtc_probability", fields.xtc_probability, 0.0..=1.0),
            ("xtc_threshold", fields.xtc_threshold, 0.0..=0.5),
            (
                "repetition_penalty",
                fields.repetition.value,
                f32::MIN_POSITIVE..=f32::MAX,
            ),
        ];
        for (key, value, range) in ranges {
            if let Some(value) = value
                && !range.contains(&value)
            {
                return Err(mistake_in(Mistake::Value, "out of range", key, value));
            }
        }
        if fields.min_tokens_to_keep == Some(0) {
            return Err(mistake_in(
                Mistake::Value,
                "out of range",
                "min_tokens_to_keep",
                0,
            ));
        }
        Ok(fields)
    }

    /// The model's own settings with those of the request over them.
    pub(crate) fn over(&self, defaults: Sampling, logprobs: Option<u32>) -> Sampling {
        let penalty = |fields: PenaltyFields, default: Option<Penalty>| {
            let value = fields.value.or(default.map(|penalty| penalty.value))?;
            Some(Penalty {
                value,
                context_size: fields.context_size.unwrap_or(DEFAULT_PENALTY_CONTEXT),
            })
        };
        let mut penalties = defaults.penalties;
        penalties.repetition = penalty(self.repetition, penalties.repetition);
        penalties.presence = penalty(self.presence, penalties.presence);
        penalties.frequency = penalty(self.frequency, penalties.frequency);
        penalties.logit_bias.clone_from(&self.logit_bias);
        Sampling {
            temperature: self.temperature.unwrap_or(defaults.temperature),
            top_p: self.top_p.unwrap_or(defaults.top_p),
            min_p: self.min_p.unwrap_or(defaults.min_p),
            min_tokens_to_keep: self
                .min_tokens_to_keep
                .unwrap_or(defaults.min_tokens_to_keep),
            xtc_probability: self.xtc_probability.unwrap_or(defaults.xtc_probability),
            xtc_threshold: self.xtc_threshold.unwrap_or(defaults.xtc_threshold),
            top_k: self.top_k.unwrap_or(defaults.top_k),
            seed: self.seed,
            penalties,
            logprobs,
        }
    }
}

/// As mlx-lm has it, -1 and 0 keep all.
fn top_k(request: &Object<'_>) -> Result<Option<u32>> {
    if request.get("top_k").and_then(Value::as_i64) == Some(-1) {
        return Ok(Some(0));
    }
    let number = request.count("top_k")?;
    Ok(number.map(|number| u32::try_from(number).unwrap_or(u32::MAX)))
}

/// Any whole number is a seed, a negative one too.
fn seed(request: &Object<'_>) -> Result<Option<u64>> {
    match request.get("seed") {
        None => Ok(None),
        Some(value) => value
            .as_u64()
            .or_else(|| value.as_i64().map(|seed| seed as u64))
            .map(Some)
            .ok_or_else(|| request.malformed("a whole number", "seed")),
    }
}

/// An object from ids to biases, as clients send it, or a list of such pairs: JSON has no other
/// way to write an id as a number.
fn logit_bias(request: &Object<'_>) -> Result<Vec<(u32, f32)>> {
    let mut biases = Vec::new();
    let mut named = HashSet::new();
    let mut add = |id: Option<u32>, bias: &Value, shown: &str| -> Result<()> {
        let bias = bias.as_f64().map(|bias| bias as f32);
        let bias = bias.filter(|bias| bias.is_finite());
        let (Some(id), Some(bias)) = (id, bias) else {
            let what = "not a token id with a finite bias";
            return Err(mistake_in(Mistake::Value, what, "logit_bias", shown));
        };
        if !named.insert(id) {
            return Err(mistake_in(Mistake::Value, "named twice", "logit_bias", id));
        }
        biases.push((id, bias));
        Ok(())
    };
    match request.get("logit_bias") {
        None => {}
        Some(Value::Object(entries)) => {
            for (key, bias) in entries {
                let id = key.parse().ok().filter(|id: &u32| id.to_string() == *key);
                let key: String = key.chars().take(16).collect();
                add(id, bias, &Escaped(&key).to_string())?;
            }
        }
        Some(Value::Array(pairs)) => {
            for (index, pair) in pairs.iter().enumerate() {
                let (id, bias) = match pair.as_array().map(Vec::as_slice) {
                    Some([id, bias]) => (id, bias),
                    _ => (&Value::Null, &Value::Null),
                };
                let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
                add(id, bias, &format!("[{index}]"))?;
            }
        }
        Some(_) => return Err(request.malformed("an object", "logit_bias")),
    }
    Ok(biases)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(request: Value) -> Result<SamplingFields> {
        SamplingFields::read(&Object::root(&request).unwrap())
    }

    #[test]
    fn null_is_unset_and_zero_is_a_value() {
        assert_eq!(
            read(json!({"temperature": null, "top_k": null, "logit_bias": null})).unwrap(),
            SamplingFields::default()
        );
        let defaults = Sampling {
            temperature: 0.7,
            top_p: 0.9,
            ..Sampling::default()
        };
        let over = read(json!({"temperature": 0, "top_k": 5.0})).unwrap();
        let sampling = over.over(defaults, Some(2));
        assert_eq!(
            (sampling.temperature, sampling.top_p, sampling.top_k),
            (0.0, 0.9, 5)
        );
        assert_eq!(sampling.logprobs, Some(2));
    }

    #[test]
    fn mlx_lms_names_are_read() {
        let all = json!({
            "temperature": 0.5, "top_p": 0.5, "min_p": 0.25, "top_k": 7, "seed": -1,
            "min_tokens_to_keep": 2, "xtc_probability": 0.5, "xtc_threshold": 0.25,
            "repetition_penalty": 1.5, "repetition_context_size": 3, "presence_penalty": 0.5,
            "presence_context_size": 4, "frequency_penalty": -0.5, "frequency_context_size": 0,
            "logit_bias": {"5": -100, "6": 0.5},
        });
        let sampling = read(all).unwrap().over(Sampling::default(), None);
        let penalty = |value, context_size| {
            Some(Penalty {
                value,
                context_size,
            })
        };
        assert_eq!(sampling.seed, Some(u64::MAX));
        assert_eq!((sampling.min_p, sampling.min_tokens_to_keep), (0.25, 2));
        assert_eq!(
            (sampling.xtc_probability, sampling.xtc_threshold),
            (0.5, 0.25)
        );
        assert_eq!(sampling.penalties.repetition, penalty(1.5, 3));
        assert_eq!(sampling.penalties.presence, penalty(0.5, 4));
        assert_eq!(sampling.penalties.frequency, penalty(-0.5, 0));
        assert_eq!(sampling.penalties.logit_bias, [(5, -100.0), (6, 0.5)]);
    }

    #[test]
    fn a_key_of_logit_bias_is_an_id_as_text_or_number() {
        let as_text = read(json!({"logit_bias": {"5": 1}})).unwrap();
        assert_eq!(read(json!({"logit_bias": [[5, 1]]})).unwrap(), as_text);
        for (wrong, named) in [
            (json!({"x": 1}), "logit_bias x"),
            (json!({"-1": 1}), "logit_bias -1"),
            (json!({"05": 1}), "logit_bias 05"),
            (json!({"5": "1"}), "logit_bias 5"),
            (json!({"4294967296": 1}), "logit_bias 4294967296"),
            (json!([[5, 1], [5, 2]]), "logit_bias 5"),
            (json!([[5, 1], [5]]), "logit_bias [1]"),
            (json!([5]), "logit_bias [0]"),
            (json!("5"), "logit_bias"),
        ] {
            let error = read(json!({"logit_bias": wrong})).unwrap_err();
            assert!(error.message().ends_with(named), "{error}");
        }
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        for (key, value) in [
            ("temperature", json!(-0.1)),
            ("temperature", json!("1")),
            ("temperature", json!(1e300)),
            ("top_p", json!(1.1)),
            ("min_p", json!(-1)),
            ("min_tokens_to_keep", json!(0)),
            ("xtc_probability", json!(2)),
            ("xtc_threshold", json!(0.6)),
            ("top_k", json!(-2)),
            ("top_k", json!(1.5)),
            ("seed", json!(1.5)),
            ("repetition_penalty", json!(0)),
            ("repetition_context_size", json!(-1)),
            ("presence_penalty", json!([])),
            ("frequency_penalty", json!(true)),
        ] {
            let error = read(json!({key: value})).unwrap_err();
            assert!(error.message().contains(key), "{key}: {error}");
        }
    }
}
