//! Reading a request's fields: each mistake is named by the path of its field.

use std::fmt;

use serde_json::{Map, Value};

use super::failure::{Cause, Mistake};
use crate::{
    error::{Error, Kind, Result},
    escape::Escaped,
};

/// Characters of an offending value that an error shows.
const SHOWN_CHARACTERS: usize = 64;

/// An object of a request with its place in it. Null means unset everywhere.
#[derive(Clone, Debug)]
pub(super) struct Object<'a> {
    place: String,
    map: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    /// The request itself.
    pub(super) fn root(request: &'a Value) -> Result<Self> {
        match request {
            Value::Object(map) => Ok(Self {
                place: String::new(),
                map,
            }),
            _ => Err(malformed("request is not an object")),
        }
    }

    /// The value at `place`, which must be an object.
    pub(super) fn at(place: String, value: &'a Value) -> Result<Self> {
        match value {
            Value::Object(map) => Ok(Self { place, map }),
            _ => Err(mistake(Mistake::Type, "not an object", &place)),
        }
    }

    /// Where a field of it is.
    pub(super) fn place_of(&self, key: &str) -> String {
        if self.place.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.place)
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// All fields, those that are null too.
    pub(super) fn fields(&self) -> &'a Map<String, Value> {
        self.map
    }

    pub(super) fn string(&self, key: &str) -> Result<Option<&'a str>> {
        self.read(key, "a string", Value::as_str)
    }

    pub(super) fn required_string(&self, key: &str) -> Result<&'a str> {
        self.string(key)?.ok_or_else(|| self.missing(key))
    }

    pub(super) fn boolean(&self, key: &str) -> Result<Option<bool>> {
        self.read(key, "a boolean", Value::as_bool)
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<f32>> {
        self.read(key, "a number", |value| {
            let number = value.as_f64()? as f32;
            number.is_finite().then_some(number)
        })
    }

    /// A whole number, 0 or more, also where it is written as 5.0.
    pub(super) fn count(&self, key: &str) -> Result<Option<u64>> {
        self.read(key, "a whole number from 0", whole)
    }

    /// As [`count`](Self::count), from 1.
    pub(super) fn positive(&self, key: &str) -> Result<Option<u64>> {
        self.read(key, "a whole number from 1", |value| {
            whole(value).filter(|&number| number > 0)
        })
    }

    pub(super) fn object(&self, key: &str) -> Result<Option<Object<'a>>> {
        let value = self.get(key);
        value
            .map(|value| Self::at(self.place_of(key), value))
            .transpose()
    }

    pub(super) fn list(&self, key: &str) -> Result<Option<&'a [Value]>> {
        self.read(key, "a list", |value| value.as_array().map(Vec::as_slice))
    }

    /// A list of objects.
    pub(super) fn objects(&self, key: &str) -> Result<Option<Vec<Object<'a>>>> {
        let Some(items) = self.list(key)? else {
            return Ok(None);
        };
        let place = self.place_of(key);
        let items = items.iter().enumerate();
        items
            .map(|(index, item)| Self::at(format!("{place}[{index}]"), item))
            .collect::<Result<_>>()
            .map(Some)
    }

    /// A list of strings.
    pub(super) fn strings(&self, key: &str) -> Result<Option<Vec<&'a str>>> {
        let Some(items) = self.list(key)? else {
            return Ok(None);
        };
        let items = items.iter().map(Value::as_str);
        items
            .collect::<Option<_>>()
            .map(Some)
            .ok_or_else(|| self.malformed("a list of strings", key))
    }

    fn read<T>(
        &self,
        key: &str,
        what: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => read(value)
                .map(Some)
                .ok_or_else(|| self.malformed(what, key)),
        }
    }

    /// Refuses any value of a field but null and those that ask for what happens anyway.
    pub(super) fn only(&self, key: &str, accepted: &[Value]) -> Result<()> {
        match self.get(key) {
            Some(_) if accepted.is_empty() => Err(self.refused(Mistake::UnsupportedField, key)),
            Some(value) if !accepted.contains(value) => Err(self.unsupported(key)),
            _ => Ok(()),
        }
    }

    /// The field is of the wrong kind.
    pub(super) fn malformed(&self, what: &str, key: &str) -> Error {
        mistake(Mistake::Type, &format!("not {what}"), &self.place_of(key))
    }

    /// The field must be there.
    pub(super) fn missing(&self, key: &str) -> Error {
        mistake(Mistake::Missing, "missing", &self.place_of(key))
    }

    /// The field is known, but what it asks for is not done here.
    pub(super) fn unsupported(&self, key: &str) -> Error {
        self.refused(Mistake::UnsupportedValue, key)
    }

    /// The field has a value that means nothing.
    pub(super) fn unknown(&self, key: &str) -> Error {
        self.refused(Mistake::Value, key)
    }

    fn refused(&self, mistake: Mistake, key: &str) -> Error {
        let what = match mistake {
            Mistake::UnsupportedField | Mistake::UnsupportedValue => "not supported",
            _ => "not a known value",
        };
        let place = self.place_of(key);
        match self.map.get(key).and_then(shown) {
            Some(value) => mistake_in(mistake, what, &place, value),
            None => self::mistake(mistake, what, &place),
        }
    }
}

/// An error about a request as a whole.
pub(super) fn malformed(message: impl Into<String>) -> Error {
    Error::new(Kind::Protocol, message)
}

/// An error about the field at `place`.
pub(super) fn mistake(mistake: Mistake, what: &str, place: &str) -> Error {
    about(mistake, format!("{what}: {place}"), place)
}

/// An error about what the field at `place` holds.
pub(super) fn mistake_in(
    mistake: Mistake,
    what: &str,
    place: &str,
    value: impl fmt::Display,
) -> Error {
    about(mistake, format!("{what}: {place} {value}"), place)
}

fn about(mistake: Mistake, message: String, place: &str) -> Error {
    malformed(message).with_source(Cause::Field {
        place: place.to_owned(),
        mistake,
    })
}

fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let number = value.as_f64()?;
        let is_whole = number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number);
        is_whole.then_some(number as u64)
    })
}

/// A value that is short enough to be a setting, never text of a conversation.
fn shown(value: &Value) -> Option<String> {
    match value {
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::String(text) if text.chars().count() <= SHOWN_CHARACTERS => {
            Some(Escaped(text).to_string())
        }
        _ => None,
    }
}
