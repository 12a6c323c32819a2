//! A chat request's JSON as the variables that templates see.

use serde_json::{Map, Value};

use super::tools;
use crate::error::{Error, Kind, Result};

/// A request, checked and brought into the form that templates expect.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) messages: Vec<Value>,
    pub(super) tools: Option<Vec<Value>>,
    pub(super) documents: Option<Vec<Value>>,
    pub(super) adds_generation_prompt: bool,
    /// The field of the last message that the model is to continue.
    pub(super) continues: Option<String>,
    /// The name of the template to use.
    pub(super) template: Option<String>,
    /// All other variables.
    pub(super) variables: Map<String, Value>,
}

/// The names under which a message's reasoning is passed; templates read one or the other.
pub(super) const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

impl Request {
    /// Reads a request object. `messages` is required; `tools`, `documents`,
    /// `add_generation_prompt` (true unless the last message is continued),
    /// `continue_final_message` (true, or the name of a field) and `chat_template` (a name)
    /// are known; everything else, and everything in `chat_template_kwargs`, is a variable.
    pub(super) fn parse(request: &Value) -> Result<Self> {
        let Value::Object(object) = request else {
            return Err(invalid("chat request is not a json object"));
        };
        let mut variables = object.clone();
        if let Some(nested) = take(&mut variables, "chat_template_kwargs") {
            let Value::Object(nested) = nested else {
                return Err(invalid("not an object: chat_template_kwargs"));
            };
            variables.extend(nested);
        }
        let continues = match take(&mut variables, "continue_final_message") {
            None | Some(Value::Bool(false)) => None,
            Some(Value::Bool(true)) => Some("content".to_owned()),
            Some(Value::String(field)) if !field.is_empty() => Some(field),
            Some(_) => {
                return Err(invalid(
                    "neither a boolean nor a name: continue_final_message",
                ));
            }
        };
        let adds_generation_prompt = match take(&mut variables, "add_generation_prompt") {
            None => continues.is_none(),
            Some(Value::Bool(flag)) => flag,
            Some(_) => return Err(invalid("not a boolean: add_generation_prompt")),
        };
        if adds_generation_prompt && continues.is_some() {
            return Err(invalid(
                "a final message to continue excludes a generation prompt: continue_final_message",
            ));
        }
        let template = match take(&mut variables, "chat_template") {
            None => None,
            Some(Value::String(name)) => Some(name),
            Some(_) => return Err(invalid("not a name: chat_template")),
        };
        let mut messages = list(&mut variables, "messages")?
            .ok_or_else(|| invalid("chat request has no messages"))?;
        if messages.is_empty() {
            return Err(invalid("chat request has no messages"));
        }
        for (index, message) in messages.iter_mut().enumerate() {
            normalize_message(message)
                .map_err(|problem| invalid(&format!("{problem}: messages[{index}]")))?;
        }
        let tools = list(&mut variables, "tools")?
            .filter(|tools| !tools.is_empty())
            .map(|tools| tools.into_iter().map(tools::with_types).collect());
        let documents = list(&mut variables, "documents")?;
        Ok(Self {
            messages,
            tools,
            documents,
            adds_generation_prompt,
            continues,
            template,
            variables,
        })
    }

    /// The variables of a template, those of the request over the model's special tokens.
    pub(super) fn context(&self, special_tokens: &[(String, String)]) -> Map<String, Value> {
        let list = |items: &Option<Vec<Value>>| items.clone().map_or(Value::Null, Value::Array);
        let mut context = Map::new();
        for (name, text) in special_tokens {
            context.insert(name.clone(), Value::String(text.clone()));
        }
        context.extend(self.variables.clone());
        context.insert("messages".to_owned(), Value::Array(self.messages.clone()));
        context.insert("tools".to_owned(), list(&self.tools));
        context.insert("documents".to_owned(), list(&self.documents));
        context.insert(
            "add_generation_prompt".to_owned(),
            Value::Bool(self.adds_generation_prompt),
        );
        context
    }
}

impl Request {
    /// All texts in it, keys included.
    pub(super) fn texts(&self) -> Vec<&str> {
        let mut texts = Vec::new();
        let lists = [
            Some(&self.messages),
            self.tools.as_ref(),
            self.documents.as_ref(),
        ];
        for value in lists.into_iter().flatten().flatten() {
            collect_texts(value, &mut texts);
        }
        for value in self.variables.values() {
            collect_texts(value, &mut texts);
        }
        texts
    }
}

fn collect_texts<'a>(value: &'a Value, texts: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Value::Object(object) => {
            texts.extend(object.keys().map(String::as_str));
            object.values().for_each(|item| collect_texts(item, texts));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Takes a field; null means unset.
fn take(object: &mut Map<String, Value>, key: &str) -> Option<Value> {
    object.shift_remove(key).filter(|value| !value.is_null())
}

fn list(object: &mut Map<String, Value>, key: &str) -> Result<Option<Vec<Value>>> {
    match take(object, key) {
        None => Ok(None),
        Some(Value::Array(items)) => {
            if let Some(index) = items.iter().position(|item| !item.is_object()) {
                return Err(invalid(&format!("not an object: {key}[{index}]")));
            }
            Ok(Some(items))
        }
        Some(_) => Err(invalid(&format!("not a list: {key}"))),
    }
}

/// Drops fields that are null, gives reasoning all of its names, and makes the arguments of
/// tool calls objects.
fn normalize_message(message: &mut Value) -> std::result::Result<(), &'static str> {
    let Value::Object(message) = message else {
        return Err("not an object");
    };
    message.retain(|_, value| !value.is_null());
    if !message.get("role").is_some_and(Value::is_string) {
        return Err("no role");
    }
    let reasoning = REASONING
        .iter()
        .find_map(|name| message.get(*name))
        .cloned();
    if let Some(reasoning) = reasoning {
        message
            .entry("thinking")
            .or_insert_with(|| reasoning.clone());
        message.insert("reasoning_content".to_owned(), reasoning);
    }
    if let Some(calls) = message.get_mut("tool_calls") {
        let Value::Array(calls) = calls else {
            return Err("tool_calls is not a list");
        };
        for call in calls {
            tools::normalize_call(call)?;
        }
    }
    if let Some(call) = message.get_mut("function_call") {
        tools::normalize_call(call)?;
    }
    Ok(())
}

fn invalid(message: &str) -> Error {
    Error::new(Kind::InvalidArgument, message)
}
