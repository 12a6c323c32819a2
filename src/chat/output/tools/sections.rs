//! Calls between markers inside a section: a name, a separator, arguments in JSON.
//!
//! `<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>`

use super::cursor::is_name;
use super::json::arguments_of;
use super::{Cursor, Read, Schemas, Stop, Syntax, ToolCall};

/// Calls of this kind in a section, or without one.
#[derive(Debug)]
pub(super) struct Sections {
    /// The beginnings of a section and of a call.
    openings: &'static [&'static str],
    section_end: &'static str,
    call_end: &'static str,
    /// Between the name and the arguments.
    separator: &'static str,
    /// What the name may begin with that is no part of it.
    prefix: &'static str,
    /// What a name ends with, for the first call.
    suffix: &'static str,
}

/// Kimi K2's; names are `functions.f:0`.
pub(super) const KIMI: Sections = Sections {
    openings: &["<|tool_calls_section_begin|>", "<|tool_call_begin|>"],
    section_end: "<|tool_calls_section_end|>",
    call_end: "<|tool_call_end|>",
    separator: "<|tool_call_argument_begin|>",
    prefix: "functions.",
    suffix: ":0",
};

/// DeepSeek's from V3 to V3.1. Up to R1 the separator stands between the type of the call and
/// its name, and a fence around the arguments.
pub(super) const DEEPSEEK: Sections = Sections {
    openings: &["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"],
    section_end: "<｜tool▁calls▁end｜>",
    call_end: "<｜tool▁call▁end｜>",
    separator: "<｜tool▁sep｜>",
    prefix: "",
    suffix: "",
};

const FENCE: &str = "```json";
const FENCE_END: &str = "```";

impl Syntax for Sections {
    fn openings(&self) -> &'static [&'static str] {
        self.openings
    }

    fn is_bracketed(&self) -> bool {
        true
    }

    fn seed(&self, name: Option<&str>) -> String {
        let before = format!("{}{}{}", self.section(), self.call_begin(), self.prefix);
        match name {
            Some(name) => format!("{before}{name}{}{}", self.suffix, self.separator),
            None => before,
        }
    }

    fn first(
        &self,
        opening: &str,
        cursor: &mut Cursor<'_>,
        tools: &Schemas,
    ) -> Read<Vec<ToolCall>> {
        if opening == self.section() {
            cursor.space();
            cursor.expect(self.call_begin())?;
        }
        Ok(vec![self.call(cursor, tools)?])
    }

    fn next(
        &self,
        _: &str,
        cursor: &mut Cursor<'_>,
        tools: &Schemas,
    ) -> Read<Option<Vec<ToolCall>>> {
        cursor.space();
        let has_end = cursor.eat(self.call_end)?;
        let behind_end = *cursor;
        cursor.space();
        match cursor.eat_one_of(&[self.call_begin(), self.section_end])? {
            Some(0) => match self.call(cursor, tools) {
                Err(Stop::Not) if has_end => {
                    *cursor = behind_end;
                    Ok(None)
                }
                call => call.map(|call| Some(vec![call])),
            },
            Some(_) => Ok(None),
            None if has_end => {
                *cursor = behind_end;
                Ok(None)
            }
            None => Err(Stop::Not),
        }
    }
}

impl Sections {
    fn section(&self) -> &'static str {
        self.openings[0]
    }

    fn call_begin(&self) -> &'static str {
        self.openings[1]
    }

    /// Reads from behind the beginning of a call to behind its arguments.
    fn call(&self, cursor: &mut Cursor<'_>, tools: &Schemas) -> Read<ToolCall> {
        cursor.space();
        let id =
            cursor.word(|character| is_name(character) || matches!(character, ':' | ' ' | '\n'))?;
        cursor.expect(self.separator)?;
        cursor.space();
        let name = match cursor.peek()? {
            '{' => id.trim(),
            _ => cursor.name()?,
        };
        let name = match name.rsplit_once(':') {
            Some((name, _)) if !self.suffix.is_empty() => name.trim(),
            _ => name,
        };
        let name = name.strip_prefix(self.prefix).unwrap_or(name);
        if name.is_empty() {
            return Err(Stop::Not);
        }
        cursor.space();
        let is_fenced = cursor.eat(FENCE)?;
        cursor.space();
        let arguments = arguments_of(cursor.value()?).ok_or(Stop::Not)?;
        if is_fenced {
            cursor.space();
            cursor.expect(FENCE_END)?;
        }
        Ok(ToolCall {
            name: name.to_owned(),
            arguments: tools.mend(name, arguments),
        })
    }
}
