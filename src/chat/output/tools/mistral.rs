//! Mistral's calls: `[TOOL_CALLS]f[ARGS]{}`, or a list of JSON objects behind the marker.

use super::json::{self, arguments_of};
use super::{Cursor, Read, Schemas, Stop, Syntax, ToolCall};

/// Calls of both kinds. Nothing marks the end of a block.
#[derive(Debug)]
pub(super) struct Mistral;

const OPENING: &str = "[TOOL_CALLS]";
const ID: &str = "[CALL_ID]";
const ARGUMENTS: &str = "[ARGS]";

impl Syntax for Mistral {
    fn openings(&self) -> &'static [&'static str] {
        &[OPENING]
    }

    fn is_bracketed(&self) -> bool {
        true
    }

    fn seed(&self, name: Option<&str>) -> String {
        match name {
            Some(name) => format!("{OPENING}{name}{ARGUMENTS}"),
            None => OPENING.to_owned(),
        }
    }

    fn first(&self, _: &str, cursor: &mut Cursor<'_>, tools: &Schemas) -> Read<Vec<ToolCall>> {
        cursor.space();
        if matches!(cursor.peek()?, '[' | '{') {
            return json::calls(cursor, tools);
        }
        Ok(vec![named(cursor, tools, false)?])
    }

    fn next(
        &self,
        _: &str,
        cursor: &mut Cursor<'_>,
        tools: &Schemas,
    ) -> Read<Option<Vec<ToolCall>>> {
        cursor.space();
        Ok(Some(vec![named(cursor, tools, true)?]))
    }
}

/// Reads a name and arguments. Between them the marker may be missing, except where the call
/// would be any text.
fn named(cursor: &mut Cursor<'_>, tools: &Schemas, needs_marker: bool) -> Read<ToolCall> {
    let name = cursor.name()?;
    cursor.space();
    match cursor.eat_one_of(&[ARGUMENTS, ID])? {
        Some(0) => {}
        Some(_) => {
            cursor.word(|character| character.is_alphanumeric())?;
            cursor.expect(ARGUMENTS)?;
        }
        None if needs_marker => return Err(Stop::Not),
        None => {}
    }
    cursor.space();
    if cursor.peek()? != '{' {
        return Err(Stop::Not);
    }
    let arguments = arguments_of(cursor.value()?).ok_or(Stop::Not)?;
    Ok(ToolCall {
        name: name.to_owned(),
        arguments: tools.mend(name, arguments),
    })
}
