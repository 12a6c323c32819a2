//! Kimi K2's calls: `<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>`.

use super::cursor::is_name;
use super::json::arguments_of;
use super::{Cursor, Read, Schemas, Stop, Syntax, ToolCall};

/// Calls of this kind in a section, or without one.
#[derive(Debug)]
pub(super) struct KimiK2;

const SECTION: &str = "<|tool_calls_section_begin|>";
const SECTION_END: &str = "<|tool_calls_section_end|>";
const CALL: &str = "<|tool_call_begin|>";
const CALL_END: &str = "<|tool_call_end|>";
const ARGUMENTS: &str = "<|tool_call_argument_begin|>";

impl Syntax for KimiK2 {
    fn openings(&self) -> &'static [&'static str] {
        &[SECTION, CALL]
    }

    fn seed(&self, name: Option<&str>) -> String {
        match name {
            Some(name) => format!("{SECTION}{CALL}functions.{name}:0{ARGUMENTS}"),
            None => format!("{SECTION}{CALL}functions."),
        }
    }

    fn first(
        &self,
        opening: &str,
        cursor: &mut Cursor<'_>,
        tools: &Schemas,
    ) -> Read<Vec<ToolCall>> {
        if opening == SECTION {
            cursor.space();
            cursor.expect(CALL)?;
        }
        Ok(vec![call(cursor, tools)?])
    }

    fn next(
        &self,
        _: &str,
        cursor: &mut Cursor<'_>,
        tools: &Schemas,
    ) -> Read<Option<Vec<ToolCall>>> {
        cursor.space();
        let has_end = cursor.eat(CALL_END)?;
        let behind_end = *cursor;
        cursor.space();
        match cursor.eat_one_of(&[CALL, SECTION_END])? {
            Some(0) => Ok(Some(vec![call(cursor, tools)?])),
            Some(_) => Ok(None),
            None if has_end => {
                *cursor = behind_end;
                Ok(None)
            }
            None => Err(Stop::Not),
        }
    }
}

/// Reads from behind the beginning of a call to behind its arguments.
fn call(cursor: &mut Cursor<'_>, tools: &Schemas) -> Read<ToolCall> {
    cursor.space();
    let id =
        cursor.word(|character| is_name(character) || matches!(character, ':' | ' ' | '\n'))?;
    let id = id.trim();
    let name = id.rsplit_once(':').map_or(id, |(name, _)| name).trim();
    let name = name.strip_prefix("functions.").unwrap_or(name);
    if name.is_empty() {
        return Err(Stop::Not);
    }
    cursor.expect(ARGUMENTS)?;
    cursor.space();
    let arguments = arguments_of(cursor.value()?).ok_or(Stop::Not)?;
    Ok(ToolCall {
        name: name.to_owned(),
        arguments: tools.mend(name, arguments),
    })
}
