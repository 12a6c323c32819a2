//! Calls in Python's notation: `[f(x=1, y="text"), g()]`.

use serde_json::Map;

use super::{Cursor, Read, Schemas, Stop, Syntax, ToolCall, json};

/// Calls of this kind between markers. JSON is read there, too.
#[derive(Debug)]
pub(super) struct Pythonic {
    openings: &'static [&'static str],
    closing: &'static str,
}

pub(super) const LFM: Pythonic = Pythonic {
    openings: &["<|tool_call_start|>"],
    closing: "<|tool_call_end|>",
};

impl Syntax for Pythonic {
    fn openings(&self) -> &'static [&'static str] {
        self.openings
    }

    fn is_bracketed(&self) -> bool {
        true
    }

    fn seed(&self, name: Option<&str>) -> String {
        let block = self.openings[0];
        match name {
            Some(name) => format!("{block}[{name}("),
            None => format!("{block}["),
        }
    }

    fn first(&self, _: &str, cursor: &mut Cursor<'_>, tools: &Schemas) -> Read<Vec<ToolCall>> {
        cursor.space();
        if cursor.peek()? == '{' {
            return json::calls(cursor, tools);
        }
        list(cursor, tools)
    }

    fn next(&self, _: &str, cursor: &mut Cursor<'_>, _: &Schemas) -> Read<Option<Vec<ToolCall>>> {
        cursor.space();
        cursor.expect(self.closing)?;
        Ok(None)
    }
}

/// Reads a list of calls, of either notation.
pub(super) fn list(cursor: &mut Cursor<'_>, tools: &Schemas) -> Read<Vec<ToolCall>> {
    let mut inside = *cursor;
    inside.expect("[")?;
    inside.space();
    if inside.peek()? == '{' {
        return json::calls(cursor, tools);
    }
    *cursor = inside;
    let mut calls = Vec::new();
    loop {
        cursor.space();
        calls.push(call(cursor, tools)?);
        cursor.space();
        if cursor.eat("]")? {
            return Ok(calls);
        }
        cursor.expect(",")?;
    }
}

/// Reads one call; its arguments have names.
pub(super) fn call(cursor: &mut Cursor<'_>, tools: &Schemas) -> Read<ToolCall> {
    let name = cursor.name()?;
    cursor.expect("(")?;
    let mut arguments = Map::new();
    loop {
        cursor.space();
        if cursor.eat(")")? {
            break;
        }
        let key = cursor.word(|character| character.is_alphanumeric() || character == '_')?;
        cursor.space();
        cursor.expect("=")?;
        cursor.space();
        arguments.insert(key.to_owned(), cursor.value()?);
        cursor.space();
        match cursor.peek()? {
            ',' => cursor.skip(1),
            ')' => {}
            _ => return Err(Stop::Not),
        }
    }
    Ok(ToolCall {
        arguments: tools.mend(name, arguments),
        name: name.to_owned(),
    })
}
