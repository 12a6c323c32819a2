//! Typed access to the values of a configuration file, with errors that name file and key.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::{
    error::{Error, Kind, Result},
    escape::Escaped,
    snapshot::number,
};

/// The values of one object of a JSON file, or of an object with another around it whose values
/// stand in where the inner one has none. `null` counts as no value.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    /// What messages begin with: the file, and where in it.
    place: &'a str,
    inner: &'a Map<String, Value>,
    outer: Option<&'a Map<String, Value>>,
}

impl<'a> Fields<'a> {
    /// The values of `object`, found at `place`.
    pub(crate) fn new(place: &'a str, object: &'a Map<String, Value>) -> Self {
        Self {
            place,
            inner: object,
            outer: None,
        }
    }

    /// The values of `inner`, then those of `self`.
    pub(crate) fn with_inner(self, inner: &'a Map<String, Value>) -> Self {
        Self {
            inner,
            outer: Some(self.inner),
            ..self
        }
    }

    /// The value of `key`, whatever it is.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        let value = |object: &'a Map<String, Value>| object.get(key).filter(|v| !v.is_null());
        value(self.inner).or_else(|| self.outer.and_then(value))
    }

    /// An error about this object.
    pub(crate) fn error(&self, kind: Kind, what: impl std::fmt::Display) -> Error {
        Error::new(kind, format!("{}: {what}", self.place))
    }

    /// What to say of a key that must be there.
    pub(crate) fn missing(&self, key: &str) -> Error {
        self.error(Kind::ModelFormat, format_args!("missing: {key}"))
    }

    fn wrong(&self, key: &str, expected: impl std::fmt::Display, value: &Value) -> Error {
        let value = value.to_string();
        self.error(
            Kind::ModelFormat,
            format_args!("{key} is not {expected}: {}", Escaped(&value)),
        )
    }

    /// A whole number in `range`.
    pub(crate) fn count(&self, key: &str, range: RangeInclusive<usize>) -> Result<Option<usize>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        value
            .as_u64()
            .and_then(|value| usize::try_from(value).ok())
            .filter(|value| range.contains(value))
            .map(Some)
            .ok_or_else(|| {
                let (least, most) = range.into_inner();
                let expected = format_args!("a whole number from {least} to {most}").to_string();
                self.wrong(key, expected, value)
            })
    }

    /// A number of which `accept` holds; `expected` says what that is.
    pub(crate) fn number(
        &self,
        key: &str,
        expected: &str,
        accept: impl Fn(f64) -> bool,
    ) -> Result<Option<f64>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        number(value)
            .filter(|&number| accept(number))
            .map(Some)
            .ok_or_else(|| self.wrong(key, expected, value))
    }

    /// A finite number above 0.
    pub(crate) fn positive(&self, key: &str) -> Result<Option<f64>> {
        let accept = |number: f64| number > 0.0 && number.is_finite();
        self.number(key, "a number above 0", accept)
    }

    /// A truth value.
    pub(crate) fn boolean(&self, key: &str) -> Result<Option<bool>> {
        self.get(key)
            .map(|value| {
                let boolean = value.as_bool();
                boolean.ok_or_else(|| self.wrong(key, "true or false", value))
            })
            .transpose()
    }

    /// A string.
    pub(crate) fn string(&self, key: &str) -> Result<Option<&'a str>> {
        self.get(key)
            .map(|value| {
                value
                    .as_str()
                    .ok_or_else(|| self.wrong(key, "a string", value))
            })
            .transpose()
    }

    /// An object.
    pub(crate) fn object(&self, key: &str) -> Result<Option<&'a Map<String, Value>>> {
        self.get(key)
            .map(|value| {
                let object = value.as_object();
                object.ok_or_else(|| self.wrong(key, "an object", value))
            })
            .transpose()
    }

    /// A list.
    pub(crate) fn list(&self, key: &str) -> Result<Option<&'a [Value]>> {
        self.get(key)
            .map(|value| {
                let list = value.as_array();
                list.map(Vec::as_slice)
                    .ok_or_else(|| self.wrong(key, "a list", value))
            })
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn the_inner_object_comes_first_and_null_is_nothing() {
        let outer = object(json!({"a": 1, "b": 2, "c": 3, "d": null}));
        let inner = object(json!({"a": 10, "b": null}));
        let fields = Fields::new("f", &outer).with_inner(&inner);
        let count = |key| fields.count(key, 0..=100).unwrap();
        assert_eq!(
            [count("a"), count("b"), count("c"), count("d"), count("e")],
            [Some(10), Some(2), Some(3), None, None]
        );
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_named() {
        let values = object(json!({
            "count": -1, "float": 1.0, "huge": 101, "string": "a\nb", "list": [1], "nan": {"__float__": "NaN"},
        }));
        let fields = Fields::new("dir/config.json", &values);
        let message = |error: Error| {
            assert_eq!(error.kind(), Kind::ModelFormat);
            error.message().to_owned()
        };
        for key in ["count", "float", "huge", "string", "list", "nan"] {
            let error = fields.count(key, 1..=100).unwrap_err();
            let expected = format!("dir/config.json: {key} is not a whole number from 1 to 100: ");
            assert!(message(error).starts_with(&expected));
        }
        assert_eq!(
            message(fields.boolean("string").unwrap_err()),
            "dir/config.json: string is not true or false: \"a\\\\nb\""
        );
        assert_eq!(
            message(fields.string("count").unwrap_err()),
            "dir/config.json: count is not a string: -1"
        );
        assert!(
            message(fields.object("list").unwrap_err()).ends_with("list is not an object: [1]")
        );
        assert!(message(fields.list("count").unwrap_err()).ends_with("count is not a list: -1"));
        assert!(
            message(fields.positive("nan").unwrap_err()).contains("nan is not a number above 0")
        );
        assert!(message(fields.positive("count").unwrap_err()).ends_with("above 0: -1"));
        assert_eq!(fields.positive("float").unwrap(), Some(1.0));
    }
}
