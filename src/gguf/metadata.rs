//! The metadata of a file: keys with typed values.

use std::{collections::HashMap, io::Read};

use super::cursor::{Cursor, corrupt};
use crate::{
    error::{Error, Kind, Result},
    escape::Escaped,
};

/// Elements of all arrays together; a vocabulary has some 100,000.
const MOST_ELEMENTS: usize = 1 << 23;

/// Arrays in arrays.
const MOST_DEPTH: usize = 4;

/// A value, of whatever width it has in the file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Integer(i128),
    Float(f64),
    Boolean(bool),
    Text(String),
    Texts(Vec<String>),
    Integers(Vec<i64>),
    Floats(Vec<f32>),
    /// An array of something else, which nobody asks for.
    Other,
}

/// All values, by key.
#[derive(Debug, Default)]
pub(crate) struct Metadata(HashMap<String, Value>);

const TEXT: u32 = 8;
const ARRAY: u32 = 9;

impl Metadata {
    /// Reads `count` keys with their values.
    pub(super) fn read<R: Read>(cursor: &mut Cursor<R>, count: usize) -> Result<Self> {
        let mut values = HashMap::new();
        let mut elements = MOST_ELEMENTS;
        for _ in 0..count {
            let key = cursor.text()?;
            let kind = cursor.u32()?;
            let value = read(cursor, kind, &mut elements, 0)
                .map_err(|error| Error::new(error.kind(), format!("{}: {error}", Escaped(&key))))?;
            if values.contains_key(&key) {
                return Err(corrupt(format!("a key stands twice: {}", Escaped(&key))));
            }
            values.insert(key, value);
        }
        Ok(Self(values))
    }

    /// The value of `key`.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    fn wrong(key: &str, expected: &str) -> Error {
        Error::new(
            Kind::ModelFormat,
            format!("a value is no {expected}: {}", Escaped(key)),
        )
    }

    /// A whole number that is not negative.
    pub(crate) fn count(&self, key: &str) -> Result<Option<u64>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Integer(value)) => u64::try_from(*value)
                .map(Some)
                .map_err(|_| Self::wrong(key, "count")),
            Some(_) => Err(Self::wrong(key, "count")),
        }
    }

    /// A number.
    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Float(value)) => Ok(Some(*value)),
            Some(Value::Integer(value)) => Ok(Some(*value as f64)),
            Some(_) => Err(Self::wrong(key, "number")),
        }
    }

    /// A truth value.
    pub(crate) fn boolean(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Boolean(value)) => Ok(Some(*value)),
            Some(_) => Err(Self::wrong(key, "truth value")),
        }
    }

    /// A text.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(Self::wrong(key, "text")),
        }
    }

    /// A list of texts.
    pub(crate) fn texts(&self, key: &str) -> Result<Option<&[String]>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Texts(texts)) => Ok(Some(texts)),
            Some(_) => Err(Self::wrong(key, "list of texts")),
        }
    }

    /// A list of whole numbers.
    pub(crate) fn integers(&self, key: &str) -> Result<Option<&[i64]>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Integers(values)) => Ok(Some(values)),
            Some(_) => Err(Self::wrong(key, "list of whole numbers")),
        }
    }
}

fn unknown(kind: u32) -> Error {
    corrupt(format!("a value has an unknown type: {kind}"))
}

/// Bytes of a value of this type at least.
fn least_bytes(kind: u32) -> Result<u64> {
    Ok(match kind {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        10..=12 | TEXT => 8,
        ARRAY => 12,
        other => return Err(unknown(other)),
    })
}

fn read<R: Read>(
    cursor: &mut Cursor<R>,
    kind: u32,
    elements: &mut usize,
    depth: usize,
) -> Result<Value> {
    Ok(match kind {
        6 | 12 => Value::Float(float(cursor, kind)?),
        7 => Value::Boolean(match cursor.take::<1>()?[0] {
            0 => false,
            1 => true,
            other => {
                return Err(corrupt(format!(
                    "a truth value is neither 0 nor 1: {other}"
                )));
            }
        }),
        TEXT => Value::Text(cursor.text()?),
        ARRAY => array(cursor, elements, depth)?,
        kind => Value::Integer(integer(cursor, kind)?),
    })
}

fn integer<R: Read>(cursor: &mut Cursor<R>, kind: u32) -> Result<i128> {
    Ok(match kind {
        0 => cursor.take().map(u8::from_le_bytes)?.into(),
        1 => cursor.take().map(i8::from_le_bytes)?.into(),
        2 => cursor.take().map(u16::from_le_bytes)?.into(),
        3 => cursor.take().map(i16::from_le_bytes)?.into(),
        4 => cursor.take().map(u32::from_le_bytes)?.into(),
        5 => cursor.take().map(i32::from_le_bytes)?.into(),
        10 => cursor.take().map(u64::from_le_bytes)?.into(),
        11 => cursor.take().map(i64::from_le_bytes)?.into(),
        other => return Err(unknown(other)),
    })
}

fn float<R: Read>(cursor: &mut Cursor<R>, kind: u32) -> Result<f64> {
    match kind {
        6 => cursor.take().map(f32::from_le_bytes).map(f64::from),
        _ => cursor.take().map(f64::from_le_bytes),
    }
}

fn array<R: Read>(cursor: &mut Cursor<R>, elements: &mut usize, depth: usize) -> Result<Value> {
    if depth == MOST_DEPTH {
        return Err(corrupt(format!(
            "arrays lie deeper in each other than: {MOST_DEPTH}"
        )));
    }
    let kind = cursor.u32()?;
    let count = cursor.count(least_bytes(kind)?, "elements")?;
    *elements = elements
        .checked_sub(count)
        .ok_or_else(|| corrupt(format!("more elements in arrays than: {MOST_ELEMENTS}")))?;
    Ok(match kind {
        TEXT => Value::Texts((0..count).map(|_| cursor.text()).collect::<Result<_>>()?),
        6 | 12 => Value::Floats(
            (0..count)
                .map(|_| float(cursor, kind).map(|value| value as f32))
                .collect::<Result<_>>()?,
        ),
        7 | ARRAY => {
            for _ in 0..count {
                read(cursor, kind, elements, depth + 1)?;
            }
            Value::Other
        }
        kind => Value::Integers(
            (0..count)
                .map(|_| {
                    let value = integer(cursor, kind)?;
                    i64::try_from(value)
                        .map_err(|_| corrupt(format!("a number is too large: {value}")))
                })
                .collect::<Result<_>>()?,
        ),
    })
}
