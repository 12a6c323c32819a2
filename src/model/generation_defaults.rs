//! How the makers of a model would sample from it: `generation_config.json`.

use serde_json::Value;

use super::config::Fields;
use crate::{
    error::{Error, Kind, Result},
    escape::EscapedPath,
    snapshot::{Snapshot, read_json},
};

/// Sampling settings that a model folder suggests; `None` where it says nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct GenerationDefaults {
    /// Whether to sample at all, rather than take the likeliest token.
    pub(crate) do_sample: Option<bool>,
    /// 0 or more.
    pub(crate) temperature: Option<f64>,
    /// From 0 to 1.
    pub(crate) top_p: Option<f64>,
    /// 1 or more.
    pub(crate) top_k: Option<u32>,
    /// From 0 to 1.
    pub(crate) min_p: Option<f64>,
    /// Above 0.
    pub(crate) repetition_penalty: Option<f64>,
}

impl GenerationDefaults {
    /// Reads the folder's `generation_config.json`; all `None` where there is none.
    ///
    /// # Errors
    /// [`Kind::ModelFormat`] naming the file and a value of the wrong kind or out of range.
    pub(crate) fn read(snapshot: &Snapshot) -> Result<Self> {
        const NAME: &str = "generation_config.json";
        match read_json(snapshot.dir(), NAME)? {
            None => Ok(Self::default()),
            Some(value) => {
                let path = snapshot.dir().join(NAME);
                Self::parse(&EscapedPath(&path).to_string(), &value)
            }
        }
    }

    fn parse(place: &str, value: &Value) -> Result<Self> {
        let not_an_object = || Error::new(Kind::ModelFormat, format!("{place}: not an object"));
        let fields = Fields::new(place, value.as_object().ok_or_else(not_an_object)?);
        let fraction =
            |key| fields.number(key, "a number from 0 to 1", |n| (0.0..=1.0).contains(&n));
        let at_least_0 = |number: f64| number >= 0.0 && number.is_finite();
        // Some write -1 for "all", and 0 is the same to every reader.
        let is_off = fields
            .get("top_k")
            .and_then(Value::as_i64)
            .is_some_and(|k| k == -1 || k == 0);
        let top_k = if is_off {
            None
        } else {
            fields.count("top_k", 1..=u32::MAX as usize)?
        };
        Ok(Self {
            do_sample: fields.boolean("do_sample")?,
            temperature: fields.number("temperature", "a number from 0", at_least_0)?,
            top_p: fraction("top_p")?,
            top_k: top_k.map(|k| u32::try_from(k).expect("within the range asked for")),
            min_p: fraction("min_p")?,
            repetition_penalty: fields.positive("repetition_penalty")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    fn parse(value: Value) -> Result<GenerationDefaults> {
        GenerationDefaults::parse("generation_config.json", &value)
    }

    #[test]
    fn settings_are_read_where_there_are_any() {
        let all = json!({
            "bos_token_id": 1, "do_sample": true, "temperature": 0.6, "top_p": 0.9, "top_k": 20,
            "min_p": 0, "repetition_penalty": 1.05, "transformers_version": "4.45.0",
        });
        assert_eq!(
            parse(all).unwrap(),
            GenerationDefaults {
                do_sample: Some(true),
                temperature: Some(0.6),
                top_p: Some(0.9),
                top_k: Some(20),
                min_p: Some(0.0),
                repetition_penalty: Some(1.05),
            }
        );
        for nothing in [
            json!({}),
            json!({"temperature": null, "top_k": 0}),
            json!({"top_k": -1}),
        ] {
            assert_eq!(parse(nothing).unwrap(), GenerationDefaults::default());
        }
    }

    #[test]
    fn impossible_settings_are_named() {
        for (value, complaint) in [
            (
                json!({"temperature": -0.1}),
                "temperature is not a number from 0: -0.1",
            ),
            (
                json!({"temperature": "0.6"}),
                "temperature is not a number from 0: \"0.6\"",
            ),
            (
                json!({"temperature": {"__float__": "NaN"}}),
                "temperature is not a number from 0: {\"__float__\":\"NaN\"}",
            ),
            (
                json!({"top_p": 1.1}),
                "top_p is not a number from 0 to 1: 1.1",
            ),
            (
                json!({"top_k": -2}),
                "top_k is not a whole number from 1 to 4294967295: -2",
            ),
            (json!({"top_k": 1.5}), "from 1 to 4294967295: 1.5"),
            (
                json!({"min_p": -1}),
                "min_p is not a number from 0 to 1: -1",
            ),
            (
                json!({"repetition_penalty": 0}),
                "repetition_penalty is not a number above 0: 0",
            ),
            (
                json!({"do_sample": "yes"}),
                "do_sample is not true or false: \"yes\"",
            ),
            (json!([]), "not an object"),
        ] {
            let error = parse(value).unwrap_err();
            assert_eq!(error.kind(), Kind::ModelFormat);
            assert!(error.message().starts_with("generation_config.json: "));
            assert!(error.message().ends_with(complaint), "{error}");
        }
    }

    #[test]
    fn a_folder_may_have_none() {
        let dir = tempfile::tempdir().unwrap();
        let snapshot = Snapshot::inspect(dir.path()).unwrap();
        assert_eq!(
            GenerationDefaults::read(&snapshot).unwrap(),
            GenerationDefaults::default()
        );
        fs::write(
            dir.path().join("generation_config.json"),
            "{\"temperature\": Infinity}",
        )
        .unwrap();
        let error = GenerationDefaults::read(&snapshot).unwrap_err();
        assert!(
            error
                .message()
                .contains("/generation_config.json: temperature"),
            "{error}"
        );
    }
}
