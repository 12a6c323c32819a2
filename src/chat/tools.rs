//! Tool schemas and tool calls in the form that templates expect.

use serde_json::{Map, Value, json};

/// A tool with the types that its schema only implies, written first: templates print the
/// schema as it is, or read each type.
pub(super) fn with_types(mut tool: Value) -> Value {
    if let Value::Object(object) = &mut tool
        && object.contains_key("function")
        && !object.contains_key("type")
    {
        object.shift_insert(0, "type".to_owned(), json!("function"));
    }
    let function = match tool.get_mut("function") {
        Some(function) => function,
        None => &mut tool,
    };
    if let Some(Value::Object(parameters)) = function.get_mut("parameters") {
        add_types(parameters);
        if !parameters.contains_key("type") {
            parameters.shift_insert(0, "type".to_owned(), json!("object"));
        }
    }
    tool
}

/// Adds the type to a schema that has none but can only mean one, and to those inside.
fn add_types(schema: &mut Map<String, Value>) {
    if !schema.contains_key("type")
        && let Some(implied) = implied_type(schema)
    {
        schema.shift_insert(0, "type".to_owned(), json!(implied));
    }
    for key in ["properties", "$defs", "definitions", "patternProperties"] {
        if let Some(Value::Object(schemas)) = schema.get_mut(key) {
            for schema in schemas.values_mut() {
                add_types_to_value(schema);
            }
        }
    }
    for key in [
        "items",
        "additionalProperties",
        "anyOf",
        "oneOf",
        "allOf",
        "prefixItems",
    ] {
        match schema.get_mut(key) {
            Some(Value::Array(schemas)) => schemas.iter_mut().for_each(add_types_to_value),
            Some(schema) => add_types_to_value(schema),
            None => {}
        }
    }
}

fn add_types_to_value(schema: &mut Value) {
    if let Value::Object(schema) = schema {
        add_types(schema);
    }
}

fn implied_type(schema: &Map<String, Value>) -> Option<&'static str> {
    let has_one_of = |keys: &[&str]| keys.iter().any(|key| schema.contains_key(*key));
    if has_one_of(&["properties", "additionalProperties", "required"]) {
        Some("object")
    } else if has_one_of(&["items", "prefixItems"]) {
        Some("array")
    } else if let Some(Value::Array(values)) = schema.get("enum") {
        let mut types = values.iter().map(type_name);
        let first = types.next()?;
        types.all(|other| other == first).then_some(first)
    } else {
        schema.get("const").map(type_name)
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Makes the arguments of a call an object, whether the call is `{"function": {...}}` or flat.
pub(super) fn normalize_call(call: &mut Value) -> Result<(), &'static str> {
    let Value::Object(call) = call else {
        return Err("a tool call is not an object");
    };
    call.retain(|_, value| !value.is_null());
    let function = match call.get_mut("function") {
        Some(Value::Object(function)) => function,
        Some(_) => return Err("a tool call's function is not an object"),
        None => call,
    };
    let arguments = function.remove("arguments").unwrap_or(Value::Null);
    function.insert("arguments".to_owned(), argument_object(arguments));
    Ok(())
}

/// The arguments as an object. Clients send them as JSON text. Nothing, blank text and null
/// are no arguments; anything else that is not an object (another JSON value, or text that
/// is not JSON, as a model may write it) becomes the one argument `arguments`.
pub(super) fn argument_object(arguments: Value) -> Value {
    let parsed = match arguments {
        Value::String(text) if text.trim().is_empty() => Value::Null,
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        other => other,
    };
    match parsed {
        Value::Object(_) => parsed,
        Value::Null => Value::Object(Map::new()),
        other => json!({"arguments": other}),
    }
}
