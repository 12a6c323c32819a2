//! The template engine set up as transformers sets up Jinja2.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{AutoEscape, Environment, ErrorKind, State};

use super::clock::Clock;
use super::python::{self, JsonStyle};

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
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(|out, _state, value| {
        out.write_str(&python::text(value))
            .map_err(minijinja::Error::from)
    });
    environment.add_filter("tojson", tojson);
    environment.add_function("raise_exception", raise_exception);
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
            .map(|value| pair(&value))
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

fn pair(value: &Value) -> Result<(String, String), minijinja::Error> {
    let items: Vec<Value> = value.try_iter()?.collect();
    match items.as_slice() {
        [item, key] => Ok((python::text(item), python::text(key))),
        _ => Err(minijinja::Error::new(
            ErrorKind::InvalidOperation,
            "tojson: separators must be two texts",
        )),
    }
}
