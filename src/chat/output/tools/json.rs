//! Calls as JSON objects, bare or between tags.

use serde_json::{Map, Value};

use super::{Cursor, Read, Schemas, Stop, Syntax, ToolCall};

/// `<tool_call>{"name": "f", "arguments": {}}</tool_call>`, with one call or a list.
#[derive(Debug)]
pub(super) struct JsonInTags {
    openings: &'static [&'static str],
    /// Empty where the end of the answer ends the block.
    closing: &'static str,
    name_key: &'static str,
    arguments_key: &'static str,
    is_list: bool,
}

pub(super) const QWEN: JsonInTags = JsonInTags {
    openings: &["<tool_call>"],
    closing: "</tool_call>",
    name_key: "name",
    arguments_key: "arguments",
    is_list: false,
};

pub(super) const COHERE: JsonInTags = JsonInTags {
    openings: &["<|START_ACTION|>"],
    closing: "<|END_ACTION|>",
    name_key: "tool_name",
    arguments_key: "parameters",
    is_list: true,
};

pub(super) const GRANITE: JsonInTags = JsonInTags {
    openings: &["<|tool_call|>"],
    closing: "",
    name_key: "name",
    arguments_key: "arguments",
    is_list: true,
};

pub(super) const NEMOTRON: JsonInTags = JsonInTags {
    openings: &["<TOOLCALL>"],
    closing: "</TOOLCALL>",
    name_key: "name",
    arguments_key: "arguments",
    is_list: true,
};

/// Apriel's and MiniMax M1's.
pub(super) const TOOL_CALLS: JsonInTags = JsonInTags {
    openings: &["<tool_calls>"],
    closing: "</tool_calls>",
    name_key: "name",
    arguments_key: "arguments",
    is_list: false,
};

pub(super) const GIGACHAT: JsonInTags = JsonInTags {
    openings: &["<|function_call|>"],
    closing: "",
    name_key: "name",
    arguments_key: "arguments",
    is_list: false,
};

pub(super) const FIREFUNCTION: JsonInTags = JsonInTags {
    openings: &["functools"],
    closing: "",
    name_key: "name",
    arguments_key: "arguments",
    is_list: true,
};

impl Syntax for JsonInTags {
    fn openings(&self) -> &'static [&'static str] {
        self.openings
    }

    fn is_bracketed(&self) -> bool {
        true
    }

    fn seed(&self, name: Option<&str>) -> String {
        let space = if self.is_list { "[" } else { "\n" };
        let object = seed(self.name_key, self.arguments_key, name);
        format!("{}{space}{object}", self.openings[0])
    }

    fn first(&self, _: &str, cursor: &mut Cursor<'_>, tools: &Schemas) -> Read<Vec<ToolCall>> {
        cursor.space();
        calls(cursor, tools)
    }

    fn next(
        &self,
        _: &str,
        cursor: &mut Cursor<'_>,
        tools: &Schemas,
    ) -> Read<Option<Vec<ToolCall>>> {
        cursor.space();
        if cursor.eat(self.closing)? {
            return Ok(None);
        }
        if cursor.peek()? == '{' {
            return calls(cursor, tools).map(Some);
        }
        // One brace too many is a common slip.
        cursor.expect("}")?;
        cursor.space();
        cursor.expect(self.closing)?;
        Ok(None)
    }
}

/// The beginning of a call as a JSON object.
pub(super) fn seed(name_key: &str, arguments_key: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => {
            format!(
                "{{\"{name_key}\": {}, \"{arguments_key}\": ",
                Value::from(name)
            )
        }
        None => format!("{{\"{name_key}\": \""),
    }
}

/// The calls that the object or list at the cursor means.
pub(super) fn calls(cursor: &mut Cursor<'_>, tools: &Schemas) -> Read<Vec<ToolCall>> {
    if !matches!(cursor.peek()?, '{' | '[') {
        return Err(Stop::Not);
    }
    let calls = match cursor.value()? {
        Value::Array(items) => items.into_iter().map(|item| call_of(item, tools)).collect(),
        item => call_of(item, tools).map(|call| vec![call]),
    };
    calls
        .filter(|calls: &Vec<_>| !calls.is_empty())
        .ok_or(Stop::Not)
}

/// A call as one of the objects that are in use.
fn call_of(value: Value, tools: &Schemas) -> Option<ToolCall> {
    let Value::Object(mut object) = value else {
        return None;
    };
    let nested = ["function", "tool"]
        .iter()
        .find(|key| object.get(**key).is_some_and(Value::is_object));
    if let Some(Value::Object(nested)) = nested.and_then(|key| object.shift_remove(*key)) {
        object = nested;
    }
    let name = ["name", "tool_name", "function", "tool"]
        .iter()
        .find_map(|key| object.get(*key)?.as_str())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())?;
    let arguments = ["arguments", "parameters", "args"]
        .iter()
        .find_map(|key| object.shift_remove(*key))
        .unwrap_or_default();
    Some(ToolCall {
        arguments: tools.mend(&name, arguments_of(arguments)?),
        name,
    })
}

/// Arguments, which may be written as a text of JSON; none at all are empty.
pub(in crate::chat::output) fn arguments_of(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(arguments) => Some(arguments),
        Value::Null => Some(Map::new()),
        Value::String(text) if text.trim().is_empty() => Some(Map::new()),
        Value::String(text) => match super::literal::whole(&text)? {
            Value::Object(arguments) => Some(arguments),
            Value::Null => Some(Map::new()),
            _ => None,
        },
        _ => None,
    }
}
