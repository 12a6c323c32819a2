//! Llama 3's calls: a JSON object or a list of calls in Python's notation, as the whole answer
//! or behind `<|python_tag|>`.

use super::{Cursor, Read, Schemas, Stop, Syntax, ToolCall, json, pythonic};

/// Calls of these kinds. Without the marker, only what calls the request's tools is a call.
#[derive(Debug)]
pub(super) struct Llama;

/// The keys with which the object of a call begins.
const KEYS: [&str; 6] = [
    "\"name\"",
    "\"type\"",
    "\"function\"",
    "\"parameters\"",
    "\"arguments\"",
    "\"id\"",
];

impl Syntax for Llama {
    fn openings(&self) -> &'static [&'static str] {
        &["<|python_tag|>"]
    }

    fn bare_openings(&self) -> &'static [&'static str] {
        &["{", "["]
    }

    fn is_bracketed(&self) -> bool {
        true
    }

    fn seed(&self, name: Option<&str>) -> String {
        json::seed("name", "parameters", name)
    }

    fn first(
        &self,
        opening: &str,
        cursor: &mut Cursor<'_>,
        tools: &Schemas,
    ) -> Read<Vec<ToolCall>> {
        cursor.space();
        let is_bare = opening.is_empty();
        let calls = match cursor.peek()? {
            '{' => object(cursor, tools)?,
            '[' => pythonic::list(cursor, tools)?,
            _ if is_bare => return Err(Stop::Not),
            _ => {
                let mut call = pythonic::call(cursor, tools)?;
                // A built-in tool: `brave_search.call(query="...")`.
                if let Some(name) = call.name.strip_suffix(".call") {
                    call.name = name.to_owned();
                }
                vec![call]
            }
        };
        if is_bare && !calls.iter().all(|call| tools.has(&call.name)) {
            return Err(Stop::Not);
        }
        Ok(calls)
    }

    fn next(
        &self,
        _: &str,
        cursor: &mut Cursor<'_>,
        tools: &Schemas,
    ) -> Read<Option<Vec<ToolCall>>> {
        cursor.space();
        if cursor.eat(";")? {
            cursor.space();
        }
        if cursor.peek()? != '{' {
            return Err(Stop::Not);
        }
        let calls = object(cursor, tools)?;
        if !calls.iter().all(|call| tools.has(&call.name)) {
            return Err(Stop::Not);
        }
        Ok(Some(calls))
    }
}

/// Reads an object, which is refused as soon as it cannot be a call.
fn object(cursor: &mut Cursor<'_>, tools: &Schemas) -> Read<Vec<ToolCall>> {
    let mut inside = *cursor;
    inside.expect("{")?;
    inside.space();
    if inside.eat_one_of(&KEYS)?.is_none() {
        return Err(Stop::Not);
    }
    json::calls(cursor, tools)
}
