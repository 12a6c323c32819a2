//! Calls as tags that carry the name: `<function=f><parameter=x>1</parameter></function>`.

use serde_json::Map;

use super::cursor::is_name;
use super::{Cursor, Read, Schemas, Stop, Syntax, ToolCall, json};

/// Calls of this kind between the tags of a block, or without them: models forget the opening
/// one. JSON objects are read there, too.
#[derive(Debug)]
pub(super) struct FunctionTags {
    openings: &'static [&'static str],
    closing: &'static str,
}

const FUNCTION: &str = "<function=";
const FUNCTION_END: &str = "</function>";
const PARAMETER: &str = "<parameter=";
const PARAMETER_END: &str = "</parameter>";

pub(super) const QWEN_CODER: FunctionTags = FunctionTags {
    openings: &["<tool_call>", FUNCTION],
    closing: "</tool_call>",
};

pub(super) const SEED: FunctionTags = FunctionTags {
    openings: &["<seed:tool_call>", FUNCTION],
    closing: "</seed:tool_call>",
};

impl Syntax for FunctionTags {
    fn openings(&self) -> &'static [&'static str] {
        self.openings
    }

    fn seed(&self, name: Option<&str>) -> String {
        let block = self.openings[0];
        match name {
            Some(name) => format!("{block}\n{FUNCTION}{name}>\n"),
            None => format!("{block}\n{FUNCTION}"),
        }
    }

    fn first(
        &self,
        opening: &str,
        cursor: &mut Cursor<'_>,
        tools: &Schemas,
    ) -> Read<Vec<ToolCall>> {
        if opening != FUNCTION {
            cursor.space();
            if cursor.peek()? == '{' {
                return json::calls(cursor, tools);
            }
            cursor.expect(FUNCTION)?;
        }
        Ok(vec![self.function(cursor, tools)?])
    }

    fn next(
        &self,
        _: &str,
        cursor: &mut Cursor<'_>,
        tools: &Schemas,
    ) -> Read<Option<Vec<ToolCall>>> {
        cursor.space();
        match cursor.eat_one_of(&[self.closing, FUNCTION])? {
            Some(0) => Ok(None),
            Some(_) => Ok(Some(vec![self.function(cursor, tools)?])),
            None => Err(Stop::Not),
        }
    }
}

impl FunctionTags {
    /// Reads from behind `<function=` to behind `</function>`.
    fn function(&self, cursor: &mut Cursor<'_>, tools: &Schemas) -> Read<ToolCall> {
        let name = tag_name(cursor)?;
        if !name.chars().all(is_name) {
            return Err(Stop::Not);
        }
        let mut arguments = Map::new();
        loop {
            cursor.space();
            if cursor.is_finished() {
                break;
            }
            let before = *cursor;
            let markers = [FUNCTION_END, PARAMETER, PARAMETER_END, self.closing];
            match cursor.eat_one_of(&markers)? {
                Some(0) => break,
                Some(1) => {
                    let parameter = tag_name(cursor)?;
                    let value = self.value(name, cursor, tools)?;
                    let value = value.strip_prefix('\n').unwrap_or(value);
                    let value = value.strip_suffix('\n').unwrap_or(value);
                    let value = tools.decode(name, parameter, value);
                    arguments.insert(parameter.to_owned(), value);
                }
                // The end of a parameter that has none.
                Some(2) => {}
                Some(_) => {
                    *cursor = before;
                    break;
                }
                None => return Err(Stop::Not),
            }
        }
        Ok(ToolCall {
            name: name.to_owned(),
            arguments,
        })
    }

    /// The value of a parameter. It may hold the text of an ending tag: the tag counts where
    /// another one follows it. Where the end is missing, a line that begins another parameter
    /// of the tool ends the value.
    fn value<'a>(&self, tool: &str, cursor: &mut Cursor<'a>, tools: &Schemas) -> Read<&'a str> {
        let text = cursor.rest();
        let mut from = 0;
        while let Some(at) = text[from..].find('<').map(|at| from + at) {
            let mut before = *cursor;
            before.skip(at);
            let mut ahead = before;
            let ends = match ahead.eat_one_of(&[PARAMETER_END, FUNCTION_END, PARAMETER])? {
                Some(0) => {
                    let after = ahead;
                    ahead.space();
                    let follows = [PARAMETER, FUNCTION_END, self.closing];
                    let ends = ahead.is_finished() || ahead.eat_one_of(&follows)?.is_some();
                    ends.then_some(after)
                }
                Some(1) => {
                    ahead.space();
                    let ends = ahead.is_finished() || ahead.eat(self.closing)?;
                    ends.then_some(before)
                }
                Some(_) if text[..at].ends_with('\n') => {
                    let ends = match tag_name(&mut ahead) {
                        Ok(name) => tools.has_parameter(tool, name),
                        Err(Stop::More) => return Err(Stop::More),
                        Err(Stop::Not) => false,
                    };
                    ends.then_some(before)
                }
                _ => None,
            };
            if let Some(end) = ends {
                *cursor = end;
                return Ok(&text[..at]);
            }
            from = at + 1;
        }
        Err(cursor.more())
    }
}

/// The name in a tag, up to its `>`, which models forget before a new line.
fn tag_name<'a>(cursor: &mut Cursor<'a>) -> Read<&'a str> {
    let name = cursor.word(|character| !matches!(character, '>' | '\n' | '<'))?;
    let name = name.trim().trim_matches(['"', '\'']);
    if name.is_empty() {
        return Err(Stop::Not);
    }
    let mut ahead = *cursor;
    ahead.space();
    if ahead.peek()? == '>' {
        ahead.skip(1);
        *cursor = ahead;
    }
    Ok(name)
}
