//! Tools and which of them must be called.

use serde_json::{Map, Value, json};

use super::{
    failure::Mistake,
    fields::{Object, mistake, mistake_in},
};
use crate::{error::Result, escape::Escaped};

/// Whether the answer must call a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// It is told of no tools.
    None,
    /// One of the tools.
    Required,
    /// This one.
    Named(String),
}

/// A tool's definition: an object with `name`, `description` and, as `schema`, its parameters.
/// The form that templates take nests these, whatever the protocol's own does.
pub(super) fn nested(tool: &Object<'_>, schema: &str) -> Result<Value> {
    let name = tool.required_string("name")?;
    if name.is_empty() {
        return Err(mistake(Mistake::Value, "empty", &tool.place_of("name")));
    }
    tool.string("description")?;
    tool.object(schema)?;
    let mut function = Map::new();
    // In the order in which they were sent: templates print them.
    for (key, value) in tool.fields() {
        let key = match key.as_str() {
            "name" | "description" => key,
            _ if key == schema => "parameters",
            _ => continue,
        };
        if !value.is_null() {
            function.insert(key.to_owned(), value.clone());
        }
    }
    Ok(json!({"type": "function", "function": function}))
}

/// The name of a nested tool.
pub(super) fn name_of(tool: &Value) -> &str {
    tool["function"]["name"].as_str().unwrap_or_default()
}

/// Tools in the nested form, with the choice among them.
#[derive(Debug, Default)]
pub(super) struct Tools {
    pub(super) nested: Vec<Value>,
    pub(super) choice: ToolChoice,
}

impl Tools {
    /// Refuses two tools of one name: nobody could tell which was called.
    pub(super) fn new(nested: Vec<Value>) -> Result<Self> {
        for (index, tool) in nested.iter().enumerate() {
            let name = name_of(tool);
            if nested[..index].iter().any(|other| name_of(other) == name) {
                let what = "two tools have one name";
                return Err(mistake_in(Mistake::Value, what, "tools", Escaped(name)));
            }
        }
        Ok(Self {
            nested,
            choice: ToolChoice::Auto,
        })
    }

    /// Applies a choice that the field at `place` makes.
    pub(super) fn choose(&mut self, choice: ToolChoice, place: &str) -> Result<()> {
        match &choice {
            ToolChoice::Auto => {}
            ToolChoice::None => self.nested.clear(),
            ToolChoice::Required if self.nested.is_empty() => {
                let what = "there are no tools to choose from";
                return Err(mistake(Mistake::Value, what, place));
            }
            ToolChoice::Required => {}
            ToolChoice::Named(name) => self.check_name(name, place)?,
        }
        self.choice = choice;
        Ok(())
    }

    /// Leaves only the tools of these names.
    pub(super) fn allow(&mut self, names: &[&str], place: &str) -> Result<()> {
        for name in names {
            self.check_name(name, place)?;
        }
        self.nested.retain(|tool| names.contains(&name_of(tool)));
        Ok(())
    }

    fn check_name(&self, name: &str, place: &str) -> Result<()> {
        if self.nested.iter().any(|tool| name_of(tool) == name) {
            return Ok(());
        }
        let what = "not one of the tools";
        Err(mistake_in(Mistake::Value, what, place, Escaped(name)))
    }
}

/// The choice that a word makes in OpenAI's protocols.
pub(super) fn choice_of_word(word: &str, owner: &Object<'_>, key: &str) -> Result<ToolChoice> {
    match word {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        "required" => Ok(ToolChoice::Required),
        _ => Err(owner.unknown(key)),
    }
}

/// The variable that asks for reasoning of an effort. The room of chats puts it in the words of
/// each template.
pub(super) fn reasoning_variables(effort: &str) -> Map<String, Value> {
    [("reasoning_effort".to_owned(), effort.into())]
        .into_iter()
        .collect()
}

/// The variables that switch a template's reasoning on or off: templates read one or the other.
pub(super) fn thinking_variables(is_on: bool) -> Map<String, Value> {
    ["enable_thinking", "thinking"]
        .map(|name| (name.to_owned(), Value::Bool(is_on)))
        .into_iter()
        .collect()
}
