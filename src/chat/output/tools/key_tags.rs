//! Calls as a name and tags for keys and values: `f<arg_key>x</arg_key><arg_value>1</arg_value>`.

use serde_json::{Map, Value};

use super::{Cursor, Read, Schemas, Stop, Syntax, ToolCall, json};

/// Calls of this kind between tags. The model slips into JSON objects, `f {"x": 1}` and
/// `f x=1` at times.
#[derive(Debug)]
pub(super) struct KeyTags {
    openings: &'static [&'static str],
    closing: &'static str,
    key: &'static str,
    key_end: &'static str,
    value: &'static str,
    value_end: &'static str,
}

pub(super) const GLM: KeyTags = KeyTags {
    openings: &["<tool_call>"],
    closing: "</tool_call>",
    key: "<arg_key>",
    key_end: "</arg_key>",
    value: "<arg_value>",
    value_end: "</arg_value>",
};

pub(super) const LONGCAT: KeyTags = KeyTags {
    openings: &["<longcat_tool_call>"],
    closing: "</longcat_tool_call>",
    key: "<longcat_arg_key>",
    key_end: "</longcat_arg_key>",
    value: "<longcat_arg_value>",
    value_end: "</longcat_arg_value>",
};

impl Syntax for KeyTags {
    fn openings(&self) -> &'static [&'static str] {
        self.openings
    }

    fn seed(&self, name: Option<&str>) -> String {
        format!("{}{}", self.openings[0], name.unwrap_or_default())
    }

    fn first(&self, _: &str, cursor: &mut Cursor<'_>, tools: &Schemas) -> Read<Vec<ToolCall>> {
        cursor.space();
        if matches!(cursor.peek()?, '{' | '[') {
            return json::calls(cursor, tools);
        }
        let name = cursor.name()?;
        space(cursor)?;
        if cursor.is_finished() {
            // An answer that is a marker and a word is a call only if there is such a tool.
            return match tools.has(name) {
                true => Ok(vec![call(name, Map::new())]),
                false => Err(Stop::Not),
            };
        }
        let arguments = match cursor.peek()? {
            '<' => self.tagged(name, cursor, tools)?,
            '{' => {
                let arguments = json::arguments_of(cursor.value()?).ok_or(Stop::Not)?;
                tools.mend(name, arguments)
            }
            _ => self.pairs(name, cursor, tools)?,
        };
        Ok(vec![call(name, arguments)])
    }

    fn next(&self, _: &str, cursor: &mut Cursor<'_>, _: &Schemas) -> Read<Option<Vec<ToolCall>>> {
        cursor.space();
        cursor.expect(self.closing)?;
        Ok(None)
    }
}

impl KeyTags {
    fn tagged(
        &self,
        name: &str,
        cursor: &mut Cursor<'_>,
        tools: &Schemas,
    ) -> Read<Map<String, Value>> {
        let mut arguments = Map::new();
        loop {
            space(cursor)?;
            let before = *cursor;
            if cursor.is_finished() {
                return Ok(arguments);
            }
            match cursor.eat_one_of(&[self.closing, self.key])? {
                Some(0) => {
                    *cursor = before;
                    return Ok(arguments);
                }
                Some(_) => {
                    let key = cursor.until(self.key_end)?.trim();
                    space(cursor)?;
                    cursor.expect(self.value)?;
                    let value = cursor.until(self.value_end)?;
                    arguments.insert(key.to_owned(), tools.decode(name, key, value));
                }
                None => return Err(Stop::Not),
            }
        }
    }

    fn pairs(
        &self,
        name: &str,
        cursor: &mut Cursor<'_>,
        tools: &Schemas,
    ) -> Read<Map<String, Value>> {
        let mut arguments = Map::new();
        loop {
            space(cursor)?;
            let before = *cursor;
            if cursor.is_finished() {
                return Ok(arguments);
            }
            if cursor.eat(self.closing)? {
                *cursor = before;
                return Ok(arguments);
            }
            let key = cursor.name()?;
            cursor.expect("=")?;
            let value = match cursor.peek()? {
                quote @ ('"' | '\'') => {
                    cursor.skip(1);
                    cursor.until(if quote == '"' { "\"" } else { "'" })?
                }
                _ => cursor.word(|character| !character.is_whitespace() && character != '<')?,
            };
            arguments.insert(key.to_owned(), tools.decode(name, key, value));
        }
    }
}

fn call(name: &str, arguments: Map<String, Value>) -> ToolCall {
    ToolCall {
        name: name.to_owned(),
        arguments,
    }
}

/// Skips white space; a line break may be written as `\n`.
fn space(cursor: &mut Cursor<'_>) -> Read<()> {
    cursor.space();
    while cursor.eat("\\n")? {
        cursor.space();
    }
    Ok(())
}
