//! The tokens that end an answer. Each of several files may name some, and no file all of them,
//! so that the union counts.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    error::{Error, Kind, Result},
    escape::Escaped,
};

/// What ends an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Eos {
    ids: BTreeSet<u32>,
    token: Option<String>,
}

impl Eos {
    /// The ids that the files name, ascending. They may lie beyond the vocabulary.
    pub(crate) fn ids(&self) -> &BTreeSet<u32> {
        &self.ids
    }

    /// The token whose id ends an answer too, which only the tokenizer knows.
    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Adds `eos_token_id` of a configuration found at `place`, and that of its `text_config`:
    /// an id, a list of ids, or null. -1 stands for none.
    ///
    /// # Errors
    /// [`Kind::ModelFormat`] for what is no id.
    pub(crate) fn add_ids(&mut self, place: &str, config: &Value) -> Result<()> {
        for value in [
            &config["eos_token_id"],
            &config["text_config"]["eos_token_id"],
        ] {
            let values = match value {
                Value::Array(values) => values.as_slice(),
                value => std::slice::from_ref(value),
            };
            for value in values {
                if value.is_null() || value.as_i64() == Some(-1) {
                    continue;
                }
                let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
                let wrong = || {
                    let value = value.to_string();
                    Error::new(
                        Kind::ModelFormat,
                        format!(
                            "{place}: eos_token_id is not a token id: {}",
                            Escaped(&value)
                        ),
                    )
                };
                self.ids.insert(id.ok_or_else(wrong)?);
            }
        }
        Ok(())
    }

    /// Takes `eos_token` of a `tokenizer_config.json`: a string, an object with the string as
    /// its `content`, or null.
    ///
    /// # Errors
    /// [`Kind::ModelFormat`] for anything else.
    pub(crate) fn add_token(&mut self, place: &str, config: &Value) -> Result<()> {
        let value = &config["eos_token"];
        let content = if value.is_object() {
            &value["content"]
        } else {
            value
        };
        match content {
            Value::Null => {}
            Value::String(token) => self.token = Some(token.clone()),
            _ => {
                let value = value.to_string();
                return Err(Error::new(
                    Kind::ModelFormat,
                    format!("{place}: eos_token is not a token: {}", Escaped(&value)),
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ids(config: Value) -> Result<Vec<u32>> {
        let mut eos = Eos::default();
        eos.add_ids("config.json", &config)?;
        Ok(eos.ids().iter().copied().collect())
    }

    /// ml-explore/mlx-swift-lm#449
    #[test]
    fn ids_stand_alone_in_a_list_or_nowhere() {
        for (config, expected) in [
            (json!({}), vec![]),
            (json!({"eos_token_id": null}), vec![]),
            (json!({"eos_token_id": -1}), vec![]),
            (json!({"eos_token_id": 2}), vec![2]),
            (json!({"eos_token_id": [3, 1, 3, null]}), vec![1, 3]),
            (json!({"eos_token_id": []}), vec![]),
            (
                json!({"text_config": {"eos_token_id": [1, 106]}}),
                vec![1, 106],
            ),
            (
                json!({"eos_token_id": 5, "text_config": {"eos_token_id": 4}}),
                vec![4, 5],
            ),
            (json!({"text_config": null}), vec![]),
            (json!([]), vec![]),
        ] {
            assert_eq!(ids(config.clone()).unwrap(), expected, "{config}");
        }
    }

    #[test]
    fn what_is_no_id_is_named() {
        for value in [
            json!("2"),
            json!(-2),
            json!(1.5),
            json!(true),
            json!([[1]]),
            json!(1u64 << 32),
            json!({}),
        ] {
            let error = ids(json!({ "eos_token_id": value })).unwrap_err();
            assert_eq!(error.kind(), Kind::ModelFormat);
            assert!(
                error
                    .message()
                    .starts_with("config.json: eos_token_id is not a token id: ")
            );
        }
    }

    #[test]
    fn the_token_is_a_string_or_an_object_around_it() {
        for (config, expected) in [
            (json!({"eos_token": "</s>"}), Some("</s>")),
            (
                json!({"eos_token": {"content": "<|im_end|>", "lstrip": false}}),
                Some("<|im_end|>"),
            ),
            (json!({"eos_token": null}), None),
            (json!({}), None),
        ] {
            let mut eos = Eos::default();
            eos.add_token("tokenizer_config.json", &config).unwrap();
            assert_eq!(eos.token(), expected);
        }
        for value in [json!(2), json!(["</s>"]), json!({"content": 1})] {
            let mut eos = Eos::default();
            let error = eos
                .add_token("t", &json!({ "eos_token": value }))
                .unwrap_err();
            assert!(error.message().starts_with("t: eos_token is not a token: "));
        }
    }
}
