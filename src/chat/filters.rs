//! Jinja's filters, where the engine's own differ or are missing.

use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State};

use super::python::{self, JsonStyle};

/// Puts the filters in the place of the engine's.
pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.add_filter("tojson", tojson);
    environment.add_filter("e", escape);
    environment.add_filter("escape", escape);
    environment.add_filter("int", int);
    environment.add_filter("float", float);
    environment.add_filter("string", string);
    environment.add_filter("trim", trim);
    environment.add_filter("indent", indent);
    environment.add_filter("default", default);
    environment.add_filter("d", default);
    environment.add_filter("wordcount", wordcount);
}

/// The arguments of a filter, by place or by name.
struct Arguments {
    positional: Rest<Value>,
    named: Kwargs,
}

impl Arguments {
    /// Those that a filter was called with, of which it takes so many.
    fn new(positional: Rest<Value>, named: Kwargs, most: usize) -> Result<Self, Error> {
        if positional.len() > most {
            return Err(Error::from(ErrorKind::TooManyArguments));
        }
        Ok(Self { positional, named })
    }

    fn get(&self, index: usize, name: &str) -> Result<Option<Value>, Error> {
        match self.positional.get(index) {
            Some(value) => Ok(Some(value.clone())),
            None => self.named.get(name),
        }
    }

    fn flag(&self, index: usize, name: &str) -> Result<bool, Error> {
        Ok(self.get(index, name)?.is_some_and(|value| value.is_true()))
    }

    /// Refuses names that were not asked for.
    fn end(self) -> Result<(), Error> {
        self.named.assert_all_used()
    }
}

/// A text for HTML, with the entities that markupsafe writes.
fn escape(value: &Value) -> Value {
    if value.is_safe() {
        return value.clone();
    }
    let mut out = String::new();
    for character in python::text(value).chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            _ => out.push(character),
        }
    }
    Value::from_safe_string(out)
}

/// Jinja's `int(value, default=0, base=10)`: what is no number becomes the default.
fn int(value: &Value, positional: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let arguments = Arguments::new(positional, named, 2)?;
    let default = arguments.get(0, "default")?;
    let default = default.unwrap_or_else(|| Value::from(0));
    let base = match arguments.get(1, "base")? {
        Some(base) => u32::try_from(base)?,
        None => 10,
    };
    arguments.end()?;
    let Some(text) = value.as_str() else {
        return Ok(match value.kind() {
            ValueKind::Bool => Value::from(i64::from(value.is_true())),
            ValueKind::Number if value.is_integer() => value.clone(),
            ValueKind::Number => f64::try_from(value.clone()).map_or(default, whole),
            _ => default,
        });
    };
    let text = text.trim().replace('_', "");
    let digits = match base {
        16 => text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")),
        8 => text.strip_prefix("0o").or_else(|| text.strip_prefix("0O")),
        2 => text.strip_prefix("0b").or_else(|| text.strip_prefix("0B")),
        _ => None,
    };
    let is_base = (2..=36).contains(&base);
    if let Some(number) = is_base
        .then(|| i128::from_str_radix(digits.unwrap_or(&text), base).ok())
        .flatten()
    {
        return Ok(Value::from(number));
    }
    Ok(text.parse().map_or(default, whole))
}

fn whole(number: f64) -> Value {
    let truncated = number.trunc();
    // Exact: the range of i64 is checked, and the fraction is gone.
    if truncated.abs() < 9.0e18 {
        Value::from(truncated as i64)
    } else {
        Value::from(truncated)
    }
}

/// Jinja's `float(value, default=0.0)`.
fn float(value: &Value, positional: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let arguments = Arguments::new(positional, named, 1)?;
    let default = arguments.get(0, "default")?;
    arguments.end()?;
    let parsed: Option<f64> = match value.as_str() {
        Some(text) => text.trim().replace('_', "").parse().ok(),
        None if value.kind() == ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        None => f64::try_from(value.clone()).ok(),
    };
    Ok(match (parsed, default) {
        (Some(number), _) => Value::from(number),
        (None, Some(default)) => default,
        (None, None) => Value::from(0.0),
    })
}

/// `str(value)`.
fn string(state: &State, value: &Value) -> Result<Value, Error> {
    if value.kind() == ValueKind::String {
        return Ok(value.clone());
    }
    let text = python::text(value);
    state.consume_fuel(text.len() as u64 / 16)?;
    Ok(Value::from(text))
}

/// Jinja's `trim(value, chars=None)`.
fn trim(value: &Value, positional: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let arguments = Arguments::new(positional, named, 1)?;
    let characters = arguments.get(0, "chars")?;
    arguments.end()?;
    let text = python::text(value);
    let trimmed = python::strip(&text, characters.as_ref(), true, true)?;
    Ok(if value.is_safe() {
        Value::from_safe_string(trimmed.to_owned())
    } else {
        Value::from(trimmed)
    })
}

/// Jinja's `indent(value, width=4, first=False, blank=False)`; the width may be a text.
fn indent(
    state: &State,
    value: &Value,
    positional: Rest<Value>,
    named: Kwargs,
) -> Result<Value, Error> {
    let arguments = Arguments::new(positional, named, 3)?;
    let width = arguments.get(0, "width")?;
    let indents_first = arguments.flag(1, "first")?;
    let indents_blank = arguments.flag(2, "blank")?;
    arguments.end()?;
    let indention = match &width {
        Some(width) => match width.as_str() {
            Some(text) => text.to_owned(),
            None => {
                let count = usize::try_from(i64::try_from(width.clone())?).unwrap_or(0);
                state.consume_fuel((count / 16) as u64)?;
                " ".repeat(count)
            }
        },
        None => " ".repeat(4),
    };
    let text = python::text(value) + "\n";
    let lines = python::lines(&text, false);
    state.consume_fuel((lines.len() * (1 + indention.len() / 16)) as u64)?;
    let mut out = String::new();
    for (index, line) in lines.into_iter().enumerate() {
        let is_indented = match index {
            0 => indents_first,
            _ => indents_blank || !line.is_empty(),
        };
        if index > 0 {
            out.push('\n');
        }
        if is_indented {
            out.push_str(&indention);
        }
        out.push_str(line);
    }
    Ok(Value::from(out))
}

/// Jinja's `default(value, default_value="", boolean=False)`.
fn default(value: &Value, positional: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let arguments = Arguments::new(positional, named, 2)?;
    let other = arguments.get(0, "default_value")?;
    let also_if_false = arguments.flag(1, "boolean")?;
    arguments.end()?;
    Ok(
        if value.is_undefined() || (also_if_false && !value.is_true()) {
            other.unwrap_or_else(|| Value::from(""))
        } else {
            value.clone()
        },
    )
}

/// How many runs of letters, digits and underscores there are.
fn wordcount(value: &Value) -> usize {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let text = python::text(value);
    text.split(|character| !is_word(character))
        .filter(|word| !word.is_empty())
        .count()
}

/// transformers' `tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
fn tojson(
    state: &State,
    value: &Value,
    positional: Rest<Value>,
    named: Kwargs,
) -> Result<Value, Error> {
    let arguments = Arguments::new(positional, named, 4)?;
    let style = JsonStyle {
        ascii_only: arguments.flag(0, "ensure_ascii")?,
        indent: arguments
            .get(1, "indent")?
            .and_then(|value| indentation(&value)),
        separators: arguments
            .get(2, "separators")?
            .filter(|value| !value.is_none())
            .map(|value| pair(&value).map(|(item, key)| (python::text(&item), python::text(&key))))
            .transpose()?,
        sorts_keys: arguments.flag(3, "sort_keys")?,
    };
    arguments.end()?;
    let text = python::json(value, &style).map_err(|kind| {
        Error::new(
            ErrorKind::BadSerialization,
            format!("tojson: not a json value: {kind}"),
        )
    })?;
    state.consume_fuel(text.len() as u64 / 16)?;
    Ok(Value::from(text))
}

/// What `indent` means: a number of spaces, a text, or everything in one line.
fn indentation(value: &Value) -> Option<String> {
    /// More than any template asks for, and no way to fill the memory.
    const WIDEST: i64 = 64;
    match value.kind() {
        ValueKind::String => value.as_str().map(str::to_owned),
        ValueKind::Bool => value.is_true().then(|| " ".to_owned()),
        _ => {
            let width = value.as_i64()?.clamp(0, WIDEST);
            Some(" ".repeat(usize::try_from(width).unwrap_or(0)))
        }
    }
}

/// The items of a value that has two.
pub(super) fn pair(value: &Value) -> Result<(Value, Value), Error> {
    let items: Vec<Value> = value.try_iter()?.collect();
    match <[Value; 2]>::try_from(items) {
        Ok([first, second]) => Ok((first, second)),
        Err(items) => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("expected two values, got {}", items.len()),
        )),
    }
}
