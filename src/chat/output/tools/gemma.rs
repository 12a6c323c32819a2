//! Calls as `call:f{x:1,y:<|"|>text<|"|>}` between Gemma's markers.

use serde_json::{Map, Value};

use super::cursor::is_name;
use super::{Cursor, Read, Schemas, Stop, Syntax, ToolCall, literal};

/// Calls of this kind between markers.
#[derive(Debug)]
pub(super) struct Gemma {
    openings: &'static [&'static str],
    closing: &'static str,
    /// Stands before and behind a text.
    quote: &'static str,
}

pub(super) const GEMMA: Gemma = Gemma {
    openings: &["<|tool_call>"],
    closing: "<tool_call|>",
    quote: "<|\"|>",
};

pub(super) const FUNCTION_GEMMA: Gemma = Gemma {
    openings: &["<start_function_call>"],
    closing: "<end_function_call>",
    quote: "<escape>",
};

const CALL: &str = "call:";

/// How deep values may be nested.
const DEEPEST: usize = 100;

impl Syntax for Gemma {
    fn openings(&self) -> &'static [&'static str] {
        self.openings
    }

    fn seed(&self, name: Option<&str>) -> String {
        let block = self.openings[0];
        match name {
            Some(name) => format!("{block}{CALL}{name}{{"),
            None => format!("{block}{CALL}"),
        }
    }

    fn first(&self, _: &str, cursor: &mut Cursor<'_>, tools: &Schemas) -> Read<Vec<ToolCall>> {
        cursor.space();
        cursor.expect(CALL)?;
        Ok(vec![self.call(cursor, tools)?])
    }

    fn next(
        &self,
        _: &str,
        cursor: &mut Cursor<'_>,
        tools: &Schemas,
    ) -> Read<Option<Vec<ToolCall>>> {
        cursor.space();
        match cursor.eat_one_of(&[self.closing, CALL])? {
            Some(0) => Ok(None),
            Some(_) => Ok(Some(vec![self.call(cursor, tools)?])),
            None => Err(Stop::Not),
        }
    }
}

impl Gemma {
    fn call(&self, cursor: &mut Cursor<'_>, tools: &Schemas) -> Read<ToolCall> {
        let name = cursor.name()?;
        cursor.expect("{")?;
        let bare = |key: &str, text: &str| tools.decode(name, key, text);
        let arguments = self.mapping(cursor, DEEPEST, &bare)?;
        Ok(ToolCall {
            name: name.to_owned(),
            arguments: tools.mend(name, arguments),
        })
    }

    /// Reads from behind `{` to behind `}`; `bare` decodes a value without quotes by its key.
    fn mapping(
        &self,
        cursor: &mut Cursor<'_>,
        depth: usize,
        bare: &dyn Fn(&str, &str) -> Value,
    ) -> Read<Map<String, Value>> {
        let mut entries = Map::new();
        loop {
            cursor.space();
            if cursor.eat("}")? {
                return Ok(entries);
            }
            let key = self.key(cursor)?;
            cursor.space();
            cursor.expect(":")?;
            let value = self.value(cursor, '}', depth, &|text| bare(&key, text))?;
            entries.insert(key, value);
            separator(cursor, '}')?;
        }
    }

    fn key(&self, cursor: &mut Cursor<'_>) -> Read<String> {
        if let Some(text) = self.quoted(cursor)? {
            return Ok(text);
        }
        if cursor.peek()? == '"' {
            return match cursor.value()? {
                Value::String(text) => Ok(text),
                _ => Err(Stop::Not),
            };
        }
        let key = cursor.word(|character| is_name(character) || character == '$')?;
        Ok(key.to_owned())
    }

    /// A text between the family's quotes, if one comes next.
    fn quoted(&self, cursor: &mut Cursor<'_>) -> Read<Option<String>> {
        if !cursor.eat(self.quote)? {
            return Ok(None);
        }
        cursor.until(self.quote).map(|text| Some(text.to_owned()))
    }

    fn value(
        &self,
        cursor: &mut Cursor<'_>,
        end: char,
        depth: usize,
        bare: &dyn Fn(&str) -> Value,
    ) -> Read<Value> {
        let depth = depth.checked_sub(1).ok_or(Stop::Not)?;
        cursor.space();
        if let Some(text) = self.quoted(cursor)? {
            return Ok(Value::String(text));
        }
        let plain =
            |text: &str| literal::whole(text).unwrap_or_else(|| Value::String(text.to_owned()));
        match cursor.peek()? {
            '{' => {
                cursor.skip(1);
                let inner = |_: &str, text: &str| plain(text);
                self.mapping(cursor, depth, &inner).map(Value::Object)
            }
            '[' => {
                cursor.skip(1);
                let mut items = Vec::new();
                loop {
                    cursor.space();
                    if cursor.eat("]")? {
                        return Ok(Value::Array(items));
                    }
                    items.push(self.value(cursor, ']', depth, &plain)?);
                    separator(cursor, ']')?;
                }
            }
            '"' => cursor.value(),
            // Nothing at all is an empty text.
            ',' => Ok(Value::String(String::new())),
            other if other == end => Ok(Value::String(String::new())),
            _ => {
                let text = cursor.word(|character| character != ',' && character != end)?;
                Ok(bare(text.trim_end()))
            }
        }
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
