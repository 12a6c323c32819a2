//! Kimi K3's calls: `<|open|>call tool="f"<|sep|>`, one `argument` each, `<|close|>call<|sep|>`.

use serde_json::{Map, Value};

use super::json::arguments_of;
use super::{Cursor, Read, Schemas, Stop, Syntax, ToolCall, literal};

/// Calls of this kind in a section, or without one.
#[derive(Debug)]
pub(super) struct Xtml;

const SECTION: &str = "<|open|>tools<|sep|>";
const SECTION_END: &str = "<|close|>tools<|sep|>";
const CALL: &str = "<|open|>call";
const CALL_END: &str = "<|close|>call<|sep|>";
const ARGUMENT: &str = "<|open|>argument";
const ARGUMENT_END: &str = "<|close|>argument<|sep|>";
const OBJECT: &str = "<|open|>json";
const OBJECT_END: &str = "<|close|>json<|sep|>";

impl Syntax for Xtml {
    fn openings(&self) -> &'static [&'static str] {
        &[SECTION, CALL]
    }

    fn seed(&self, name: Option<&str>) -> String {
        match name {
            Some(name) => {
                let name = name.replace('&', "&amp;").replace('"', "&quot;");
                format!("{SECTION}{CALL} tool=\"{name}\" index=\"1\"<|sep|>")
            }
            None => format!("{SECTION}{CALL} tool=\""),
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
        match cursor.eat_one_of(&[CALL, SECTION_END])? {
            Some(0) => Ok(Some(vec![call(cursor, tools)?])),
            Some(_) => Ok(None),
            None => Err(Stop::Not),
        }
    }
}

/// Reads from behind the beginning of a call's tag to behind its end.
fn call(cursor: &mut Cursor<'_>, tools: &Schemas) -> Read<ToolCall> {
    let name = attribute(cursor.until("<|sep|>")?, "tool").ok_or(Stop::Not)?;
    let mut arguments = Map::new();
    loop {
        cursor.space();
        match cursor.eat_one_of(&[CALL_END, ARGUMENT, OBJECT])? {
            Some(0) => break,
            Some(1) => {
                let tag = cursor.until("<|sep|>")?;
                let key = attribute(tag, "key").ok_or(Stop::Not)?;
                let text = cursor.until(ARGUMENT_END)?;
                let value = match attribute(tag, "type").as_deref() {
                    None | Some("string") => Value::String(text.to_owned()),
                    Some(_) => {
                        literal::whole(text).unwrap_or_else(|| tools.decode(&name, &key, text))
                    }
                };
                arguments.insert(key, value);
            }
            Some(_) => {
                cursor.until("<|sep|>")?;
                let value = literal::whole(cursor.until(OBJECT_END)?);
                arguments = value.and_then(arguments_of).ok_or(Stop::Not)?;
            }
            None => return Err(Stop::Not),
        }
    }
    Ok(ToolCall {
        arguments: tools.mend(&name, arguments),
        name,
    })
}

/// The value of an attribute in a tag's text.
fn attribute(tag: &str, name: &str) -> Option<String> {
    let at = tag.find(&format!(" {name}=\""))? + name.len() + 3;
    let value = tag[at..].split_once('"')?.0;
    let value = value.replace("&quot;", "\"").replace("&amp;", "&");
    (!value.is_empty()).then_some(value)
}
