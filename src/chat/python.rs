//! How Python writes values: `str`, `repr` and `json.dumps`.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Whether `str.isspace` holds.
pub(super) fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\x1c'..='\x1f').contains(&character)
}

/// `str.strip` of one or both sides: of white space, or of the characters in a text.
pub(super) fn strip<'a>(
    text: &'a str,
    characters: Option<&Value>,
    left: bool,
    right: bool,
) -> Result<&'a str, Error> {
    let set = match characters {
        None => None,
        Some(value) if value.is_none() => None,
        Some(value) => Some(value.as_str().ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidOperation,
                "characters to strip are not a text",
            )
        })?),
    };
    let strips = |character: char| match set {
        Some(set) => set.contains(character),
        None => is_space(character),
    };
    let text = if left {
        text.trim_start_matches(strips)
    } else {
        text
    };
    Ok(if right {
        text.trim_end_matches(strips)
    } else {
        text
    })
}

/// `str.splitlines`.
pub(super) fn lines(text: &str, keeps_ends: bool) -> Vec<&str> {
    let is_end = |character: char| {
        matches!(
            character,
            '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let line = rest.find(is_end).unwrap_or(rest.len());
        let end = match rest[line..].chars().next() {
            Some('\r') if rest[line..].starts_with("\r\n") => 2,
            Some(end) => end.len_utf8(),
            None => 0,
        };
        lines.push(&rest[..line + if keeps_ends { end } else { 0 }]);
        rest = &rest[line + end..];
    }
    lines
}

/// `str(value)`, with nothing for an undefined value as Jinja prints it.
pub(super) fn text(value: &Value) -> String {
    match value.kind() {
        ValueKind::Undefined => String::new(),
        ValueKind::String => value.as_str().unwrap_or_default().to_owned(),
        _ => {
            let mut out = String::new();
            write_repr(value, &mut out);
            out
        }
    }
}

fn write_repr(value: &Value, out: &mut String) {
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number if !value.is_integer() => {
            out.push_str(&float_text(
                f64::try_from(value.clone()).unwrap_or(f64::NAN),
            ));
        }
        ValueKind::String => write_string_repr(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq if value.is_tuple() => {
            out.push('(');
            let count = write_items(value, out);
            out.push_str(if count == 1 { ",)" } else { ")" });
        }
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            write_items(value, out);
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter().into_iter().flatten().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_repr(&key, out);
                out.push_str(": ");
                write_repr(&value.get_item(&key).unwrap_or(Value::UNDEFINED), out);
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
}

fn write_items(value: &Value, out: &mut String) -> usize {
    let mut count = 0;
    for item in value.try_iter().into_iter().flatten() {
        if count > 0 {
            out.push_str(", ");
        }
        write_repr(&item, out);
        count += 1;
    }
    count
}

fn write_string_repr(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if character == quote => {
                out.push('\\');
                out.push(quote);
            }
            _ if is_printable(character) => out.push(character),
            '\0'..='\u{ff}' => out.push_str(&format!("\\x{:02x}", u32::from(character))),
            '\0'..='\u{ffff}' => out.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => out.push_str(&format!("\\U{:08x}", u32::from(character))),
        }
    }
    out.push(quote);
}

/// `str.isprintable`: no control or format character, no space but the usual one, and none
/// that is private or without a meaning.
fn is_printable(character: char) -> bool {
    match character {
        ' '..='~' => true,
        // Marks of ours that must survive.
        '\u{fdd0}'..='\u{fdef}' => true,
        _ => {
            // Behind a letter, Rust escapes the very same characters.
            let mut bytes = [b'a'; 5];
            let length = 1 + character.encode_utf8(&mut bytes[1..]).len();
            let escaped = std::str::from_utf8(&bytes[..length]).map(str::escape_debug);
            escaped.is_ok_and(|escaped| escaped.count() == 2)
        }
    }
}

/// `repr` of a float: the shortest digits that read back equal, with an exponent below
/// 1e-4 and from 1e16 on.
fn float_text(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number == 0.0 || (-4..16).contains(&exponent) {
        let plain = number.to_string();
        if plain.contains('.') {
            plain
        } else {
            plain + ".0"
        }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", exponent.abs())
    }
}

/// The parameters of `json.dumps` that templates may set.
#[derive(Clone, Debug, Default)]
pub(super) struct JsonStyle {
    pub(super) ascii_only: bool,
    /// What one level of nesting is indented by; None writes all in one line.
    pub(super) indent: Option<String>,
    /// Between items, and between key and value.
    pub(super) separators: Option<(String, String)>,
    pub(super) sorts_keys: bool,
}

/// `json.dumps(value)`, or the kind of a value that has no JSON form.
pub(super) fn json(value: &Value, style: &JsonStyle) -> Result<String, ValueKind> {
    let (item, key) = match (&style.separators, &style.indent) {
        (Some((item, key)), _) => (item.as_str(), key.as_str()),
        (None, Some(_)) => (",", ": "),
        (None, None) => (", ", ": "),
    };
    let mut writer = JsonWriter {
        style,
        item,
        key,
        depth: 0,
        out: String::new(),
    };
    writer.value(value)?;
    Ok(writer.out)
}

struct JsonWriter<'a> {
    style: &'a JsonStyle,
    item: &'a str,
    key: &'a str,
    depth: usize,
    out: String,
}

impl JsonWriter<'_> {
    fn value(&mut self, value: &Value) -> Result<(), ValueKind> {
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(bool_text(value)),
            ValueKind::Number => {
                let text = self.number_text(value);
                self.out.push_str(&text);
            }
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter().into_iter().flatten().collect();
                self.container('[', ']', &items, |writer, item| writer.value(item))?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter().into_iter().flatten().collect();
                if self.style.sorts_keys {
                    keys.sort();
                }
                self.container('{', '}', &keys, |writer, key| {
                    writer.object_key(key)?;
                    writer.out.push_str(writer.key);
                    writer.value(&value.get_item(key).unwrap_or(Value::UNDEFINED))
                })?;
            }
            other => return Err(other),
        }
        Ok(())
    }

    fn container(
        &mut self,
        open: char,
        close: char,
        items: &[Value],
        write: impl Fn(&mut Self, &Value) -> Result<(), ValueKind>,
    ) -> Result<(), ValueKind> {
        self.out.push(open);
        self.depth += 1;
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.out.push_str(self.item);
            }
            self.new_line();
            write(self, item)?;
        }
        self.depth -= 1;
        if !items.is_empty() {
            self.new_line();
        }
        self.out.push(close);
        Ok(())
    }

    fn new_line(&mut self) {
        if let Some(indent) = &self.style.indent {
            self.out.push('\n');
            for _ in 0..self.depth {
                self.out.push_str(indent);
            }
        }
    }

    fn object_key(&mut self, key: &Value) -> Result<(), ValueKind> {
        let text = match key.kind() {
            ValueKind::String => key.as_str().unwrap_or_default().to_owned(),
            ValueKind::None => "null".to_owned(),
            ValueKind::Bool => bool_text(key).to_owned(),
            ValueKind::Number => self.number_text(key),
            other => return Err(other),
        };
        self.string(&text);
        Ok(())
    }

    fn number_text(&self, value: &Value) -> String {
        if value.is_integer() {
            return value.to_string();
        }
        let text = float_text(f64::try_from(value.clone()).unwrap_or(f64::NAN));
        match text.as_str() {
            "nan" => "NaN".to_owned(),
            "inf" => "Infinity".to_owned(),
            "-inf" => "-Infinity".to_owned(),
            _ => text,
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            match character {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                '\0'..='\x1f' => self.escape(u16::from(character as u8)),
                // Noncharacters are marks of ours that must survive.
                '\u{fdd0}'..='\u{fdef}' => self.out.push(character),
                _ if self.style.ascii_only && character > '\x7e' => {
                    let mut units = [0; 2];
                    for unit in character.encode_utf16(&mut units) {
                        self.escape(*unit);
                    }
                }
                _ => self.out.push(character),
            }
        }
        self.out.push('"');
    }

    fn escape(&mut self, unit: u16) {
        self.out.push_str(&format!("\\u{unit:04x}"));
    }
}

fn bool_text(value: &Value) -> &'static str {
    if value.is_true() { "true" } else { "false" }
}
