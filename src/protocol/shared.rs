//! Fields that several protocols have.

use serde_json::{Map, Value, json};

use super::{
    failure::Mistake,
    fields::{Object, mistake, mistake_in},
};
use crate::error::Result;

/// Fields of a chat that variables of a template must not stand in for.
const NO_VARIABLES: &[&str] = &[
    "messages",
    "tools",
    "add_generation_prompt",
    "continue_final_message",
];

/// The variables that a request passes to the chat template, as mlx-lm names them.
pub(super) fn template_variables(request: &Object<'_>) -> Result<Map<String, Value>> {
    let Some(variables) = request.object("chat_template_kwargs")? else {
        return Ok(Map::new());
    };
    for key in NO_VARIABLES {
        if variables.fields().contains_key(*key) {
            let place = variables.place_of(key);
            return Err(mistake(
                Mistake::Value,
                "not a variable of a template",
                &place,
            ));
        }
    }
    Ok(variables.fields().clone())
}

/// One string that ends the answer, or a list of them.
pub(super) fn stop(request: &Object<'_>, key: &str) -> Result<Vec<String>> {
    let stop: Vec<&str> = match request.get(key) {
        Some(Value::String(one)) => vec![one],
        _ => request.strings(key)?.unwrap_or_default(),
    };
    if stop.iter().any(|text| text.is_empty()) {
        return Err(mistake(Mistake::Value, "empty", &request.place_of(key)));
    }
    Ok(stop.into_iter().map(str::to_owned).collect())
}

/// The adapter to answer with.
pub(super) fn adapter(request: &Object<'_>) -> Result<Option<String>> {
    Ok(request.string("adapter")?.map(str::to_owned))
}

/// The name that the request gives the model. It decides nothing: the caller chose the model.
pub(super) fn model(request: &Object<'_>) -> Result<Option<String>> {
    Ok(request.string("model")?.map(str::to_owned))
}

/// How many of the most likely tokens are to be told.
pub(super) fn top_logprobs(request: &Object<'_>, most: u64) -> Result<Option<u32>> {
    let Some(count) = request.count("top_logprobs")? else {
        return Ok(None);
    };
    if count > most {
        return Err(mistake_in(
            Mistake::Value,
            "out of range",
            "top_logprobs",
            count,
        ));
    }
    Ok(u32::try_from(count).ok())
}

/// Refuses every format of an answer but text.
pub(super) fn only_text_format(format: Option<Object<'_>>) -> Result<()> {
    match format {
        Some(format) if format.get("type").is_none() => Err(format.missing("type")),
        Some(format) => format.only("type", &[json!("text")]),
        None => Ok(()),
    }
}

/// The arguments of a tool call: JSON text, or an object already.
pub(super) fn arguments(owner: &Object<'_>) -> Result<Value> {
    match owner.get("arguments") {
        None => Ok(json!({})),
        Some(arguments @ (Value::String(_) | Value::Object(_))) => Ok(arguments.clone()),
        Some(_) => Err(owner.malformed("json text", "arguments")),
    }
}
