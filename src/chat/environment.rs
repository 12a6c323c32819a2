//! The template engine set up as transformers sets up Jinja2.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{AutoEscape, Environment, ErrorKind, State};

use super::clock::Clock;
use super::python;
use super::syntax::ASSIGNABLE;
use super::{filters, methods};

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
    filters::add_to(&mut environment);
    environment.add_filter(ASSIGNABLE, assignable);
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", is_sequence);
    environment.add_test("callable", is_callable);
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
/// The namespaces are named so that a macro sees them; their values do not matter.
fn assignable(
    state: &State,
    value: &Value,
    _namespaces: Rest<Value>,
) -> Result<Value, minijinja::Error> {
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

/// Python's `dict(mapping or pairs, **more)`.
fn dict(start: Option<Value>, more: Kwargs) -> Result<Value, minijinja::Error> {
    let mut entries: Vec<(Value, Value)> = Vec::new();
    if let Some(start) = start {
        for item in start.try_iter()? {
            if start.kind() == ValueKind::Map {
                let value = start.get_item(&item)?;
                entries.push((item, value));
            } else {
                entries.push(filters::pair(&item)?);
            }
        }
    }
    for name in more.args() {
        entries.push((Value::from(name), more.get::<Value>(name)?));
    }
    Ok(Value::from_pairs(entries))
}
