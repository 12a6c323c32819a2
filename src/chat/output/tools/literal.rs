//! Values as models write them: in JSON, or in Python's notation of the same.

use serde_json::{Map, Number, Value};

use super::cursor::{Cursor, Read, Stop};

/// How deep values may be nested.
const DEEPEST: usize = 100;

/// The value of a whole text, white space around it excepted.
pub(in crate::chat::output) fn whole(text: &str) -> Option<Value> {
    let mut cursor = Cursor::new(text, true);
    cursor.space();
    let value = cursor.value().ok()?;
    cursor.space();
    cursor.rest().is_empty().then_some(value)
}

/// The value at a cursor: numbers, texts in either quotes, lists, tuples, mappings, and the
/// constants of both languages.
pub(super) fn value(cursor: &mut Cursor<'_>) -> Read<Value> {
    nested(cursor, DEEPEST)
}

fn nested(cursor: &mut Cursor<'_>, depth: usize) -> Read<Value> {
    let depth = depth.checked_sub(1).ok_or(Stop::Not)?;
    match cursor.peek()? {
        '{' => mapping(cursor, depth),
        '[' => list(cursor, ']', depth),
        '(' => list(cursor, ')', depth),
        quote @ ('"' | '\'') => text(cursor, quote).map(Value::String),
        '-' | '+' | '.' | '0'..='9' => number(cursor),
        _ => constant(cursor),
    }
}

fn list(cursor: &mut Cursor<'_>, end: char, depth: usize) -> Read<Value> {
    cursor.skip(1);
    let mut items = Vec::new();
    loop {
        cursor.space();
        if cursor.peek()? == end {
            cursor.skip(1);
            return Ok(Value::Array(items));
        }
        items.push(nested(cursor, depth)?);
        separator(cursor, end)?;
    }
}

fn mapping(cursor: &mut Cursor<'_>, depth: usize) -> Read<Value> {
    cursor.skip(1);
    let mut entries = Map::new();
    loop {
        cursor.space();
        let quote = match cursor.peek()? {
            '}' => {
                cursor.skip(1);
                return Ok(Value::Object(entries));
            }
            quote @ ('"' | '\'') => quote,
            _ => return Err(Stop::Not),
        };
        let key = text(cursor, quote)?;
        cursor.space();
        cursor.expect(":")?;
        cursor.space();
        entries.insert(key, nested(cursor, depth)?);
        separator(cursor, '}')?;
    }
}

/// Reads a comma; without one, the end must come next.
fn separator(cursor: &mut Cursor<'_>, end: char) -> Read<()> {
    cursor.space();
    match cursor.peek()? {
        ',' => {
            cursor.skip(1);
            Ok(())
        }
        other if other == end => Ok(()),
        _ => Err(Stop::Not),
    }
}

fn text(cursor: &mut Cursor<'_>, quote: char) -> Read<String> {
    cursor.skip(1);
    let mut out = String::new();
    loop {
        let rest = cursor.rest();
        let at = rest.find([quote, '\\']).ok_or_else(|| cursor.more())?;
        out.push_str(&rest[..at]);
        cursor.skip(at + 1);
        if rest[at..].starts_with(quote) {
            return Ok(out);
        }
        escape(cursor, &mut out)?;
    }
}

/// What follows a backslash.
fn escape(cursor: &mut Cursor<'_>, out: &mut String) -> Read<()> {
    let character = cursor.peek()?;
    cursor.skip(character.len_utf8());
    let meant = match character {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'x' => char::from_u32(hexadecimal(cursor, 2)?).ok_or(Stop::Not)?,
        'u' => return utf16(cursor, out),
        '"' | '\'' | '\\' | '/' => character,
        // A line that is continued.
        '\n' => return Ok(()),
        // Python keeps what it does not know, such as the `\d` of a pattern.
        other => {
            out.push('\\');
            other
        }
    };
    out.push(meant);
    Ok(())
}

/// A character as one or two units of UTF-16; half a pair becomes a replacement character.
fn utf16(cursor: &mut Cursor<'_>, out: &mut String) -> Read<()> {
    let unit = hexadecimal(cursor, 4)?;
    let mut ahead = *cursor;
    if (0xD800..0xDC00).contains(&unit) && ahead.eat("\\u")? {
        let low = hexadecimal(&mut ahead, 4)?;
        if (0xDC00..0xE000).contains(&low) {
            *cursor = ahead;
            let code = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
            out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            return Ok(());
        }
    }
    out.push(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER));
    Ok(())
}

fn hexadecimal(cursor: &mut Cursor<'_>, digits: usize) -> Read<u32> {
    let mut value = 0;
    for _ in 0..digits {
        let digit = cursor.peek()?.to_digit(16).ok_or(Stop::Not)?;
        value = 16 * value + digit;
        cursor.skip(1);
    }
    Ok(value)
}

fn number(cursor: &mut Cursor<'_>) -> Read<Value> {
    let is_part = |character: char| {
        character.is_ascii_digit() || matches!(character, '+' | '-' | '.' | 'e' | 'E' | '_')
    };
    let written = cursor.word(is_part)?;
    number_of(written).ok_or(Stop::Not)
}

/// A number as JSON or Python writes it.
pub(super) fn number_of(text: &str) -> Option<Value> {
    let text = text.replace('_', "");
    if !text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first)) {
        return None;
    }
    if let Ok(whole) = text.parse::<i64>() {
        return Some(whole.into());
    }
    if let Ok(whole) = text.parse::<u64>() {
        return Some(whole.into());
    }
    let number: f64 = text.parse().ok()?;
    Number::from_f64(number).map(Value::Number)
}

fn constant(cursor: &mut Cursor<'_>) -> Read<Value> {
    match cursor.word(|character| character.is_alphanumeric() || character == '_')? {
        "true" | "True" => Ok(Value::Bool(true)),
        "false" | "False" => Ok(Value::Bool(false)),
        "null" | "None" => Ok(Value::Null),
        _ => Err(Stop::Not),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_notations_are_read() {
        for (text, value) in [
            (
                r#"{"a": [1, -2.5, 1e3], "b": null}"#,
                json!({"a": [1, -2.5, 1000.0], "b": null}),
            ),
            (
                "{'a': (True, None,), 'b': 'it\\'s'}",
                json!({"a": [true, null], "b": "it's"}),
            ),
            (r#""\ud83e\udd8a \u00e9 \n \/ \x41""#, json!("🦊 é \n / A")),
            (r#""\ud83e x""#, json!("\u{FFFD} x")),
            (r#"'\d+ "x"'"#, json!("\\d+ \"x\"")),
            ("\"two\nlines\"", json!("two\nlines")),
            ("18446744073709551615", json!(u64::MAX)),
            (" 1_000 ", json!(1000)),
            ("[]", json!([])),
            ("{}", json!({})),
        ] {
            assert_eq!(whole(text), Some(value), "{text}");
        }
    }

    #[test]
    fn other_text_is_no_value() {
        for text in [
            "",
            "{",
            "[1",
            "{a: 1}",
            "nil",
            "1 2",
            "\"x",
            "[1 2]",
            "--1",
            "{\"a\" 1}",
            "1e999",
        ] {
            assert_eq!(whole(text), None, "{text}");
        }
        assert_eq!(whole(&"[".repeat(100_000)), None);
    }

    #[test]
    fn a_value_that_goes_on_is_not_refused() {
        let text = r#"{"a": [1.5, true, "x\u00e9\"", {"b": {}}], 'c': None}"#;
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            let read = value(&mut Cursor::new(&text[..end], false));
            assert_eq!(read, Err(Stop::More), "{}", &text[..end]);
        }
    }
}
