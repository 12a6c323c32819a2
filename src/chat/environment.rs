//! The template engine set up as transformers sets up Jinja2.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{AutoEscape, Environment, ErrorKind, State};

use super::clock::Clock;
use super::methods;
use super::python::{self, JsonStyle};
use super::syntax::ASSIGNABLE;

/// How much work one rendering may do: one unit is an instruction or 64 bytes of text. The
/// longest conversations need a few million; an endless loop ends within a second.
const FUEL: u64 = 20_000_000;

/// The environment of all templates.
pub(super) fn environment(clock: Clock) -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .expect("the usual delimiters differ from each other");
    environment.set_syntax(syntax);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(methods::call);
    // A template may have a variable of this name.
    environment.remove_global("debug");
    environment.set_formatter(|out, _state, value| {
        let written = match value.as_str() {
            Some(text) => out.write_str(text),
            None => out.write_str(&python::text(value)),
        };
        written.map_err(minijinja::Error::from)
    });
    environment.add_filter("tojson", tojson);
    environment.add_filter(ASSIGNABLE, assignable);
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", is_sequence);
    environment.add_test("callable", is_callable);
    environment.add_filter("e", escape);
    environment.add_filter("escape", escape);
    environment.add_filter("int", int);
    environment.add_filter("float", float);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("dict", dict);
    environment.add_function("strftime_now", move |format: &str| {
        clock.format(format).map_err(|error| {
            minijinja::Error::new(
                ErrorKind::InvalidOperation,
                format!("strftime_now: {error}"),
            )
        })
    });
    environment
}

/// How deep a value in a namespace may be nested.
const DEEPEST: usize = 64;

/// A value that a namespace may hold. Values without an end, or whose nesting grows with each
/// round of a loop, would exhaust the stack when they are printed, compared or dropped.
fn assignable(state: &State, value: &Value) -> Result<Value, minijinja::Error> {
    check_nesting(state, value, DEEPEST)?;
    Ok(value.clone())
}

fn check_nesting(state: &State, value: &Value, depth: usize) -> Result<(), minijinja::Error> {
    let is_namespace = value
        .as_object()
        .is_some_and(|object| object.type_name().ends_with("::Namespace"));
    let depth = depth
        .checked_sub(1)
        .filter(|_| !is_namespace)
        .ok_or_else(|| {
            minijinja::Error::new(
                ErrorKind::InvalidOperation,
                "a namespace cannot hold a namespace, nor a value that is nested this deep",
            )
        })?;
    match value.kind() {
        ValueKind::Seq => {
            state.consume_fuel(1)?;
            for item in value.try_iter()? {
                check_nesting(state, &item, depth)?;
            }
        }
        ValueKind::Map => {
            state.consume_fuel(1)?;
            for key in value.try_iter()? {
                check_nesting(state, &value.get_item(&key)?, depth)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// What a template said when it refused a conversation.
#[derive(Debug)]
pub(super) struct Refusal(pub(super) String);

impl std::fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

fn raise_exception(message: &Value) -> Result<Value, minijinja::Error> {
    let message = python::text(message);
    Err(
        minijinja::Error::new(ErrorKind::InvalidOperation, message.clone())
            .with_source(Refusal(message)),
    )
}

/// None is not iterable in Python, and templates rely on it to see whether there are tools.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// Whether the value has a length and items; texts and mappings have.
fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::String
            | ValueKind::Seq
            | ValueKind::Iterable
            | ValueKind::Map
            | ValueKind::Undefined
    )
}

/// Functions can be called; of what is undefined, Jinja's class claims it.
fn is_callable(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Plain | ValueKind::Undefined)
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

/// Python's `dict(mapping or pairs, **more)`.
fn dict(start: Option<Value>, more: Kwargs) -> Result<Value, minijinja::Error> {
    let mut entries: Vec<(Value, Value)> = Vec::new();
    if let Some(start) = start {
        for item in start.try_iter()? {
            if start.kind() == ValueKind::Map {
                let value = start.get_item(&item)?;
                entries.push((item, value));
            } else {
                entries.push(pair(&item)?);
            }
        }
    }
    for name in more.args() {
        entries.push((Value::from(name), more.get::<Value>(name)?));
    }
    Ok(Value::from_pairs(entries))
}

/// Jinja's `int(value, default=0, base=10)`: what is no number becomes the default.
fn int(value: &Value, default: Option<Value>, kwargs: Kwargs) -> Result<Value, minijinja::Error> {
    let default = match default {
        Some(default) => default,
        None => kwargs
            .get::<Option<Value>>("default")?
            .unwrap_or_else(|| Value::from(0)),
    };
    let base = kwargs.get::<Option<u32>>("base")?.unwrap_or(10);
    kwargs.assert_all_used()?;
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
fn float(value: &Value, default: Option<f64>) -> f64 {
    let parsed = match value.as_str() {
        Some(text) => text.trim().replace('_', "").parse().ok(),
        None if value.kind() == ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        None => f64::try_from(value.clone()).ok(),
    };
    parsed.or(default).unwrap_or(0.0)
}

/// transformers' `tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
fn tojson(
    state: &State,
    value: &Value,
    positional: Rest<Value>,
    kwargs: Kwargs,
) -> Result<Value, minijinja::Error> {
    let argument = |index: usize, name: &str| match positional.get(index) {
        Some(value) => Ok(Some(value.clone())),
        None => kwargs.get::<Option<Value>>(name),
    };
    let style = JsonStyle {
        ascii_only: argument(0, "ensure_ascii")?.is_some_and(|value| value.is_true()),
        indent: argument(1, "indent")?.and_then(|value| indentation(&value)),
        separators: argument(2, "separators")?
            .filter(|value| !value.is_none())
            .map(|value| pair(&value).map(|(item, key)| (python::text(&item), python::text(&key))))
            .transpose()?,
        sorts_keys: argument(3, "sort_keys")?.is_some_and(|value| value.is_true()),
    };
    kwargs.assert_all_used()?;
    let text = python::json(value, &style).map_err(|kind| {
        minijinja::Error::new(
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
fn pair(value: &Value) -> Result<(Value, Value), minijinja::Error> {
    let items: Vec<Value> = value.try_iter()?.collect();
    match <[Value; 2]>::try_from(items) {
        Ok([first, second]) => Ok((first, second)),
        Err(items) => Err(minijinja::Error::new(
            ErrorKind::InvalidOperation,
            format!("expected two values, got {}", items.len()),
        )),
    }
}
