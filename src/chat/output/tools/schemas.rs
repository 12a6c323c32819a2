//! Decoding arguments by the schemas of the tools.

use serde_json::{Map, Value};

use super::literal;

/// The tools of a request by name, with the schemas of their parameters.
#[derive(Clone, Debug, Default)]
pub(in crate::chat::output) struct Schemas {
    tools: Vec<(String, Value)>,
}

impl Schemas {
    /// Reads tools in their nested form (`{"function": {"name", "parameters"}}`) or flat.
    pub(in crate::chat::output) fn new(tools: &[Value]) -> Self {
        let tools = tools.iter().filter_map(|tool| {
            let function = tool.get("function").unwrap_or(tool);
            let name = function.get("name")?.as_str()?.to_owned();
            Some((
                name,
                function.get("parameters").cloned().unwrap_or_default(),
            ))
        });
        Self {
            tools: tools.collect(),
        }
    }

    pub(in crate::chat::output) fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    pub(in crate::chat::output) fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|(name, _)| name.as_str())
    }

    pub(in crate::chat::output) fn has(&self, name: &str) -> bool {
        self.names().any(|known| known == name)
    }

    /// Whether the schema of a tool names this parameter.
    pub(super) fn has_parameter(&self, tool: &str, parameter: &str) -> bool {
        let mut schemas = self.tools.iter().filter(|(name, _)| name == tool);
        schemas.any(|(_, schema)| {
            schema
                .get("properties")
                .is_some_and(|properties| properties.get(parameter).is_some())
        })
    }

    /// The value of an argument that was written as plain text.
    pub(super) fn decode(&self, tool: &str, parameter: &str, text: &str) -> Value {
        match self.types(tool, parameter) {
            Some(types) => types.decode(text),
            None => literal::whole(text)
                .filter(|value| !value.is_number() || is_plain_number(text))
                .unwrap_or_else(|| Value::String(text.to_owned())),
        }
    }

    /// Arguments that came with types of their own, mended where a schema asks for another:
    /// a text that should be a number becomes one, `2.0` an integer.
    pub(in crate::chat::output) fn mend(
        &self,
        tool: &str,
        mut arguments: Map<String, Value>,
    ) -> Map<String, Value> {
        for (parameter, value) in &mut arguments {
            let Some(types) = self.types(tool, parameter) else {
                continue;
            };
            match value {
                Value::String(text) if !types.text => {
                    let decoded = types.decode(text);
                    if !decoded.is_string() {
                        *value = decoded;
                    }
                }
                Value::Number(number) if types.integer && !types.number => {
                    if let Some(whole) = number.as_f64().and_then(whole) {
                        *value = whole;
                    }
                }
                _ => {}
            }
        }
        arguments
    }

    /// The types that a parameter may have; none if the schema does not know it or allows all.
    fn types(&self, tool: &str, parameter: &str) -> Option<Types> {
        let (_, schema) = self.tools.iter().find(|(name, _)| name == tool)?;
        let mut types = Types::default();
        let parameter = schema.get("properties")?.get(parameter)?;
        types.collect(parameter, schema, MOST_REFERENCES);
        (types != Types::default()).then_some(types)
    }
}

/// How many references to other schemas are followed.
const MOST_REFERENCES: usize = 8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "a set of seven types")]
struct Types {
    text: bool,
    integer: bool,
    number: bool,
    boolean: bool,
    null: bool,
    list: bool,
    object: bool,
}

impl Types {
    /// Adds what `schema` allows, whose references lead into `root`.
    fn collect(&mut self, schema: &Value, root: &Value, references: usize) {
        match schema.get("type") {
            Some(Value::String(name)) => self.add(name),
            Some(Value::Array(names)) => {
                names
                    .iter()
                    .filter_map(Value::as_str)
                    .for_each(|name| self.add(name));
            }
            _ => {}
        }
        if let Some(Value::Array(values)) = schema.get("enum") {
            values.iter().for_each(|value| self.add_type_of(value));
        }
        if let Some(value) = schema.get("const") {
            self.add_type_of(value);
        }
        let Some(references) = references.checked_sub(1) else {
            return;
        };
        for key in ["anyOf", "oneOf", "allOf"] {
            if let Some(Value::Array(choices)) = schema.get(key) {
                choices
                    .iter()
                    .for_each(|choice| self.collect(choice, root, references));
            }
        }
        let reference = schema.get("$ref").and_then(Value::as_str);
        if let Some(target) = reference.and_then(|path| root.pointer(path.strip_prefix('#')?)) {
            self.collect(target, root, references);
        }
    }

    /// Adds a type by its name; other languages' names are common.
    fn add(&mut self, name: &str) {
        match name.trim().to_ascii_lowercase().as_str() {
            "string" | "str" | "text" | "varchar" | "char" | "enum" => self.text = true,
            "integer" | "int" | "int32" | "int64" | "uint" | "long" | "short" | "unsigned" => {
                self.integer = true;
            }
            "number" | "num" | "float" | "float32" | "float64" | "double" => self.number = true,
            "boolean" | "bool" => self.boolean = true,
            "null" | "none" => self.null = true,
            "array" | "list" | "arr" | "tuple" => self.list = true,
            "object" | "dict" | "map" => self.object = true,
            _ => {}
        }
    }

    fn add_type_of(&mut self, value: &Value) {
        match value {
            Value::Null => self.null = true,
            Value::Bool(_) => self.boolean = true,
            Value::Number(number) if number.is_f64() => self.number = true,
            Value::Number(_) => self.integer = true,
            Value::String(_) => self.text = true,
            Value::Array(_) => self.list = true,
            Value::Object(_) => self.object = true,
        }
    }

    /// The value of a text: of the first of these types that it can have. What has none of
    /// them stays a text.
    fn decode(self, text: &str) -> Value {
        let trimmed = text.trim();
        let lower = trimmed.to_ascii_lowercase();
        if self.null && matches!(lower.as_str(), "null" | "none" | "nil") {
            return Value::Null;
        }
        let number = literal::number_of(trimmed);
        if self.integer
            && let Some(integer) = number.as_ref().and_then(integer)
        {
            return integer;
        }
        if self.number
            && let Some(number) = number
        {
            return number;
        }
        if self.boolean {
            match lower.as_str() {
                "true" | "1" | "yes" | "on" => return Value::Bool(true),
                "false" | "0" | "no" | "off" => return Value::Bool(false),
                _ => {}
            }
        }
        if self.object || self.list {
            match literal::whole(trimmed) {
                Some(value @ Value::Object(_)) if self.object => return value,
                Some(value @ Value::Array(_)) if self.list => return value,
                _ => {}
            }
        }
        if !self.text && matches!(lower.as_str(), "null" | "none") {
            return Value::Null;
        }
        Value::String(text.to_owned())
    }
}

/// Whether a text that reads as a number is one if nothing says so: in JSON's notation, and not
/// longer than a number can be. A postal code such as `02139`, a telephone number with its `+`
/// or a long identifier would lose what they say.
fn is_plain_number(text: &str) -> bool {
    let text = text.trim();
    let is_integer = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match serde_json::from_str::<Value>(text) {
        Ok(number) => !(number.is_f64() && is_integer(text.trim_start_matches('-'))),
        Err(_) => false,
    }
}

/// A number as an integer, if it is one.
fn integer(number: &Value) -> Option<Value> {
    if number.is_f64() {
        number.as_f64().and_then(whole)
    } else {
        Some(number.clone())
    }
}

fn whole(number: f64) -> Option<Value> {
    /// Up to here each integer has a number of its own.
    const LARGEST: f64 = 9_007_199_254_740_992.0;
    (number.fract() == 0.0 && number.abs() <= LARGEST).then(|| Value::from(number as i64))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schemas() -> Schemas {
        Schemas::new(&[
            json!({"type": "function", "function": {"name": "f", "parameters": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"}, "count": {"type": "integer"}, "price": {"type": "number"},
                    "flag": {"type": "boolean"}, "tags": {"type": "array"}, "filter": {"type": "object"},
                    "maybe": {"type": ["string", "null"]}, "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                    "kind": {"enum": ["a", 1]}, "place": {"$ref": "#/$defs/place"}, "loop": {"$ref": "#/$defs/loop"},
                    "free": {}, "nothing": {"type": "null"},
                },
                "$defs": {"place": {"type": "object"}, "loop": {"$ref": "#/$defs/loop"}},
            }}}),
        ])
    }

    #[test]
    fn a_text_gets_the_type_of_its_parameter() {
        let schemas = schemas();
        for (parameter, text, value) in [
            ("text", "2", json!("2")),
            ("text", "{\"a\": 1}", json!("{\"a\": 1}")),
            ("text", "null", json!("null")),
            ("text", " x\n", json!(" x\n")),
            ("count", "2.0", json!(2)),
            ("count", " 12234585\n", json!(12_234_585)),
            ("count", "2.5", json!("2.5")),
            ("count", "many", json!("many")),
            ("price", "19.99", json!(19.99)),
            ("price", "3", json!(3)),
            ("flag", "True", json!(true)),
            ("flag", "off", json!(false)),
            ("flag", "maybe", json!("maybe")),
            ("tags", "['a', \"b\"]", json!(["a", "b"])),
            ("tags", "{", json!("{")),
            ("filter", "{'in_stock': True}", json!({"in_stock": true})),
            ("filter", "null", json!(null)),
            ("maybe", "null", json!(null)),
            ("maybe", "5", json!("5")),
            ("limit", "5", json!(5)),
            ("limit", "None", json!(null)),
            ("kind", "1", json!(1)),
            ("kind", "a", json!("a")),
            ("place", "{\"x\": 1}", json!({"x": 1})),
            ("loop", "[1]", json!([1])),
            ("free", "{\"x\": 1}", json!({"x": 1})),
            ("free", "plain", json!("plain")),
            ("nothing", "null", json!(null)),
            ("unknown", "007x", json!("007x")),
            ("unknown", "7", json!(7)),
            ("unknown", " -7.5e1\n", json!(-75.0)),
            ("unknown", "02139", json!("02139")),
            ("unknown", "+15551234567", json!("+15551234567")),
            ("unknown", "1_000", json!("1_000")),
            (
                "unknown",
                "12345678901234567890123",
                json!("12345678901234567890123"),
            ),
            ("count", "007", json!(7)),
        ] {
            assert_eq!(
                schemas.decode("f", parameter, text),
                value,
                "{parameter}: {text}"
            );
        }
        assert_eq!(schemas.decode("g", "text", "[1]"), json!([1]));
    }

    #[test]
    fn typed_arguments_are_mended() {
        let arguments = json!({"count": 2.0, "price": "1.5", "text": 3, "tags": "[1]", "maybe": "5", "flag": "x"});
        let Value::Object(arguments) = arguments else {
            unreachable!("an object was written")
        };
        assert_eq!(
            Value::Object(schemas().mend("f", arguments)),
            json!({"count": 2, "price": 1.5, "text": 3, "tags": [1], "maybe": "5", "flag": "x"})
        );
    }
}
