//! Finds the text of control tokens in messages and marks it.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Encloses a marked literal while a template runs. Noncharacters: no text holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) open: char,
    pub(super) close: char,
}

impl Marks {
    /// Marks that occur nowhere in `texts`.
    pub(super) fn absent_from(texts: &[&str]) -> Option<Self> {
        let mut free =
            ('\u{FDD0}'..='\u{FDEF}').filter(|mark| !texts.iter().any(|text| text.contains(*mark)));
        Some(Self {
            open: free.next()?,
            close: free.next()?,
        })
    }
}

/// A set of texts to look for; of several at one place the longest is found.
#[derive(Clone, Debug, Default)]
pub(super) struct Literals {
    /// By the first byte, the longest first.
    by_first_byte: HashMap<u8, Vec<String>>,
}

impl Literals {
    pub(super) fn new(literals: impl IntoIterator<Item = String>) -> Self {
        let mut by_first_byte: HashMap<u8, Vec<String>> = HashMap::new();
        for literal in literals {
            if let Some(&byte) = literal.as_bytes().first() {
                by_first_byte.entry(byte).or_default().push(literal);
            }
        }
        for literals in by_first_byte.values_mut() {
            literals.sort_by_key(|literal| std::cmp::Reverse(literal.len()));
        }
        Self { by_first_byte }
    }

    /// The first literal in `text` and where it begins.
    fn find(&self, text: &str) -> Option<(usize, &str)> {
        text.bytes().enumerate().find_map(|(at, byte)| {
            let candidates = self.by_first_byte.get(&byte)?;
            let found = candidates
                .iter()
                .find(|literal| text.as_bytes()[at..].starts_with(literal.as_bytes()))?;
            Some((at, found.as_str()))
        })
    }

    fn mark_text(&self, text: &mut String, marks: Marks) -> bool {
        let mut out = String::new();
        let mut rest = text.as_str();
        while let Some((at, literal)) = self.find(rest) {
            out.push_str(&rest[..at]);
            out.push(marks.open);
            out.push_str(literal);
            out.push(marks.close);
            rest = &rest[at + literal.len()..];
        }
        if out.is_empty() {
            return false;
        }
        out.push_str(rest);
        *text = out;
        true
    }

    /// Marks the literals in all texts inside `value`, keys included; whether there were any.
    pub(super) fn mark(&self, value: &mut Value, marks: Marks) -> bool {
        match value {
            Value::String(text) => self.mark_text(text, marks),
            Value::Array(items) => {
                let found = self.mark_seams(items, marks);
                items
                    .iter_mut()
                    .fold(found, |found, item| self.mark(item, marks) | found)
            }
            Value::Object(object) => {
                let found = self.mark_keys(object, marks);
                object
                    .values_mut()
                    .fold(found, |found, item| self.mark(item, marks) | found)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }

    /// Keys are texts, too: templates print the names of parameters. Those that a template
    /// asks for hold no literal.
    fn mark_keys(&self, object: &mut Map<String, Value>, marks: Marks) -> bool {
        if !object.keys().any(|key| self.find(key).is_some()) {
            return false;
        }
        *object = std::mem::take(object)
            .into_iter()
            .map(|(mut key, value)| {
                self.mark_text(&mut key, marks);
                (key, value)
            })
            .collect();
        true
    }

    /// Templates join the texts of content parts: where a literal would arise at a seam, a
    /// mark keeps its halves apart.
    fn mark_seams(&self, parts: &mut [Value], marks: Marks) -> bool {
        let mut found = false;
        let mut before = String::new();
        for part in parts {
            let text = match part {
                Value::String(text) => text,
                part => match part.get_mut("text") {
                    Some(Value::String(text)) => text,
                    _ => continue,
                },
            };
            let seam = before.len();
            before.push_str(text);
            if self.crosses(&before, seam) {
                text.insert(0, marks.close);
                found = true;
            }
        }
        found
    }

    fn crosses(&self, text: &str, seam: usize) -> bool {
        let literals = self.by_first_byte.values().flatten();
        literals.into_iter().any(|literal| {
            let first = (seam + 1).saturating_sub(literal.len());
            (first..seam).any(|at| text.as_bytes()[at..].starts_with(literal.as_bytes()))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MARKS: Marks = Marks {
        open: '[',
        close: ']',
    };

    fn marked(value: &Value) -> Value {
        let literals = ["<a>", "<a><b>", "é>"].map(str::to_owned);
        let mut value = value.clone();
        Literals::new(literals).mark(&mut value, MARKS);
        value
    }

    #[test]
    fn the_longest_literal_is_marked() {
        for (text, result) in [
            ("x<a>y<a><b>", "x[<a>]y[<a><b>]"),
            ("<a<a>", "<a[<a>]"),
            ("é>é", "[é>]é"),
            ("<b>", "<b>"),
        ] {
            assert_eq!(marked(&json!({"k": [text]})), json!({"k": [result]}));
            assert_eq!(
                marked(&json!({text: 1, "k": 2})).to_string(),
                json!({result: 1, "k": 2}).to_string()
            );
        }
    }

    #[test]
    fn literals_do_not_arise_between_parts() {
        let part = |text: &str| json!({"type": "text", "text": text});
        assert_eq!(
            marked(&json!([part("x<"), {"type": "image"}, part("a>"), part("<")])),
            json!([part("x<"), {"type": "image"}, part("]a>"), part("<")])
        );
        assert_eq!(
            marked(&json!([part("<"), part("a"), part(">y")])),
            json!([part("<"), part("a"), part("]>y")])
        );
        assert_eq!(marked(&json!(["x<", "a>"])), json!(["x<", "]a>"]));
    }

    #[test]
    fn marks_avoid_what_occurs() {
        let marks = Marks::absent_from(&["a\u{FDD0}", "\u{FDD2}"]).unwrap();
        assert_eq!((marks.open, marks.close), ('\u{FDD1}', '\u{FDD3}'));
        let all: String = ('\u{FDD0}'..='\u{FDEF}').collect();
        assert_eq!(Marks::absent_from(&[&all]), None);
    }
}
