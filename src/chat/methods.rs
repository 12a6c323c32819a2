//! Python's methods of texts, lists and dicts, as far as the engine's own lack them.
//!
//! Methods that would change a list or dict stay unknown: transformers runs templates in a
//! sandbox that forbids them.

use std::ops::Range;

use minijinja::value::{Kwargs, Rest, Tuple, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat;

use super::python;

/// Calls a Python method on a value that the engine has no such method for.
pub(super) fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let own = match value.kind() {
        ValueKind::String => text_method(state, value.as_str().unwrap_or_default(), method, args)?,
        ValueKind::Seq | ValueKind::Iterable => list_method(value, method, args)?,
        ValueKind::Map if method == "copy" => {
            let () = from_args(args)?;
            Some(value.clone())
        }
        _ => None,
    };
    match own {
        Some(result) => Ok(result),
        None => pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn text_method(
    state: &State,
    text: &str,
    method: &str,
    args: &[Value],
) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "split" | "rsplit" => {
            let (positional, kwargs): (Rest<Value>, Kwargs) = from_args(args)?;
            let argument = |index: usize, name: &str| match positional.get(index) {
                Some(value) => Ok(Some(value.clone())),
                None => kwargs.get::<Option<Value>>(name),
            };
            let separator = argument(0, "sep")?.filter(|value| !value.is_none());
            let limit = argument(1, "maxsplit")?
                .and_then(|value| value.as_i64())
                .and_then(|limit| usize::try_from(limit).ok());
            kwargs.assert_all_used()?;
            let separator = separator.as_ref().map(text_of).transpose()?;
            list(split(text, separator, limit, method == "rsplit")?)
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let found = match method {
                "partition" => text.split_once(separator),
                _ => text.rsplit_once(separator),
            };
            let parts = match found {
                Some((before, after)) => [before, separator, after],
                None if method == "partition" => [text, "", ""],
                None => ["", "", text],
            };
            Value::from(Tuple::from(parts.map(Value::from).to_vec()))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "startswith" | "endswith" if args.len() > 1 => {
            let (affix, start, end): (Value, Option<i64>, Option<i64>) = from_args(args)?;
            let part = &text[range(text, start, end)];
            let matches = |affix: &str| match method {
                "startswith" => part.starts_with(affix),
                _ => part.ends_with(affix),
            };
            let found = match affix.as_str() {
                Some(affix) => matches(affix),
                None => affix
                    .try_iter()?
                    .any(|affix| affix.as_str().is_some_and(matches)),
            };
            Value::from(found)
        }
        "find" | "rfind" | "index" | "rindex" => {
            let (part, start, end): (&str, Option<i64>, Option<i64>) = from_args(args)?;
            let range = range(text, start, end);
            let found = match method {
                "find" | "index" => text[range.clone()].find(part),
                _ => text[range.clone()].rfind(part),
            };
            match found {
                Some(at) => Value::from(text[..range.start + at].chars().count()),
                None if method.ends_with("find") => Value::from(-1),
                None => return Err(invalid("substring not found")),
            }
        }
        "count" => {
            let (part, start, end): (&str, Option<i64>, Option<i64>) = from_args(args)?;
            Value::from(text[range(text, start, end)].matches(part).count())
        }
        "strip" | "lstrip" | "rstrip" => {
            let (characters,): (Option<Value>,) = from_args(args)?;
            let (left, right) = (method != "rstrip", method != "lstrip");
            Value::from(python::strip(text, characters.as_ref(), left, right)?)
        }
        "splitlines" => {
            let (positional, kwargs): (Rest<Value>, Kwargs) = from_args(args)?;
            let keeps_ends = match positional.first() {
                Some(flag) => flag.is_true(),
                None => kwargs.get::<Option<bool>>("keepends")?.unwrap_or(false),
            };
            kwargs.assert_all_used()?;
            list(python::lines(text, keeps_ends))
        }
        "swapcase" => {
            let () = from_args(args)?;
            Value::from(swapped_case(text))
        }
        "title" => {
            let () = from_args(args)?;
            Value::from(title(text))
        }
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let (sign, digits) = match text.strip_prefix(['+', '-']) {
                Some(digits) => text.split_at(text.len() - digits.len()),
                None => ("", text),
            };
            let zeros = padding(state, width.saturating_sub(text.chars().count()), '0')?;
            Value::from(format!("{sign}{zeros}{digits}"))
        }
        "ljust" | "rjust" | "center" => {
            let (width, fill): (usize, Option<char>) = from_args(args)?;
            let missing = width.saturating_sub(text.chars().count());
            // Where both sides cannot get the same, Python gives the left one more if the
            // width is odd.
            let left = match method {
                "ljust" => 0,
                "rjust" => missing,
                _ => missing / 2 + (missing & width & 1),
            };
            let fill = fill.unwrap_or(' ');
            let (before, after) = (
                padding(state, left, fill)?,
                padding(state, missing - left, fill)?,
            );
            Value::from(format!("{before}{text}{after}"))
        }
        _ => return Ok(None),
    }))
}

fn list_method(value: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "index" => {
            let (item,): (Value,) = from_args(args)?;
            let at = value.try_iter()?.position(|other| other == item);
            Value::from(at.ok_or_else(|| invalid("value is not in the list"))?)
        }
        "count" => {
            let (item,): (Value,) = from_args(args)?;
            Value::from(value.try_iter()?.filter(|other| *other == item).count())
        }
        "copy" => {
            let () = from_args(args)?;
            value.clone()
        }
        _ => return Ok(None),
    }))
}

/// `str.split` and `str.rsplit`.
fn split<'a>(
    text: &'a str,
    separator: Option<&str>,
    limit: Option<usize>,
    from_right: bool,
) -> Result<Vec<&'a str>, Error> {
    let parts = limit.map_or(usize::MAX, |limit| limit.saturating_add(1));
    let Some(separator) = separator else {
        return Ok(split_at_space(text, parts, from_right));
    };
    if separator.is_empty() {
        return Err(invalid("empty separator"));
    }
    if from_right {
        let mut found: Vec<&str> = text.rsplitn(parts, separator).collect();
        found.reverse();
        return Ok(found);
    }
    Ok(text.splitn(parts, separator).collect())
}

/// Splits at runs of white space; the part that exceeds the limit keeps its outer end.
fn split_at_space(text: &str, parts: usize, from_right: bool) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = trim_side(text, from_right);
    while !rest.is_empty() {
        let at = if found.len() + 1 >= parts {
            None
        } else if from_right {
            rest.rfind(python::is_space)
        } else {
            rest.find(python::is_space)
        };
        let Some(at) = at else {
            found.push(rest);
            break;
        };
        let (before, after) = rest.split_at(at);
        if from_right {
            found.push(after.trim_start_matches(python::is_space));
            rest = trim_side(before, from_right);
        } else {
            found.push(before);
            rest = trim_side(after, from_right);
        }
    }
    if from_right {
        found.reverse();
    }
    found
}

/// The text without white space at the side from which it is split.
fn trim_side(text: &str, from_right: bool) -> &str {
    if from_right {
        text.trim_end_matches(python::is_space)
    } else {
        text.trim_start_matches(python::is_space)
    }
}

/// The bytes of `text[start:end]`, which counts characters.
fn range(text: &str, start: Option<i64>, end: Option<i64>) -> Range<usize> {
    let count = text.chars().count();
    let position = |index: i64| {
        let distance = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
        if index < 0 {
            count.saturating_sub(distance)
        } else {
            distance.min(count)
        }
    };
    let byte = |characters: usize| {
        text.char_indices()
            .nth(characters)
            .map_or(text.len(), |(at, _)| at)
    };
    let start = byte(position(start.unwrap_or(0)));
    let end = byte(end.map_or(count, position));
    start..end.max(start)
}

/// Each run of letters with its first one in upper case.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut follows_letter = false;
    for character in text.chars() {
        if follows_letter {
            out.extend(character.to_lowercase());
        } else {
            out.extend(character.to_uppercase());
        }
        follows_letter = character.is_alphabetic();
    }
    out
}

fn swapped_case(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_uppercase() {
            out.extend(character.to_lowercase());
        } else {
            out.extend(character.to_uppercase());
        }
    }
    out
}

/// A run of one character, paid for before it is made.
fn padding(state: &State, count: usize, fill: char) -> Result<String, Error> {
    state.consume_fuel((count / 16) as u64)?;
    Ok(std::iter::repeat_n(fill, count).collect())
}

fn text_of(value: &Value) -> Result<&str, Error> {
    value
        .as_str()
        .ok_or_else(|| invalid("separator is not a text"))
}

fn list(parts: Vec<&str>) -> Value {
    Value::from(parts.into_iter().map(Value::from).collect::<Vec<_>>())
}

fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}
