//! Where a model folder keeps its chat templates.

use std::path::Path;

use serde_json::Value;

use crate::error::{Error, Kind, Result};
use crate::escape::EscapedPath;
use crate::tokenizer::{read_object, read_text};

/// The templates of a model by name; the usual one is called `default`.
pub(super) type Sources = Vec<(String, String)>;

/// The name of the template that is used unless another one fits better.
pub(super) const DEFAULT: &str = "default";

/// Reads the templates of `directory`. Files (`chat_template.jinja`, and named ones in
/// `additional_chat_templates`) win over `tokenizer_config.json`, as in transformers;
/// `chat_template.json` is where processors of multimodal models used to keep theirs.
pub(super) fn load(directory: &Path) -> Result<Sources> {
    let files = from_files(directory)?;
    if !files.is_empty() {
        return Ok(files);
    }
    for name in ["tokenizer_config.json", "chat_template.json"] {
        let path = directory.join(name);
        let Some(mut object) = read_object(&path)? else {
            continue;
        };
        match object.remove("chat_template") {
            None | Some(Value::Null) => {}
            Some(template) => {
                return from_value(template).ok_or_else(|| {
                    Error::new(
                        Kind::ModelFormat,
                        format!(
                            "chat_template is neither text nor named texts: {}",
                            EscapedPath(&path)
                        ),
                    )
                });
            }
        }
    }
    Ok(Vec::new())
}

/// The syntax of tool calls that mlx-lm's conversion notes for a model.
pub(super) fn tool_syntax(directory: &Path) -> Result<Option<String>> {
    let config = read_object(&directory.join("tokenizer_config.json"))?;
    let name = config.and_then(|mut config| config.remove("tool_parser_type"));
    Ok(name.and_then(|name| name.as_str().map(str::to_owned)))
}

fn from_files(directory: &Path) -> Result<Sources> {
    let mut sources = Sources::new();
    if let Some(text) = read_text(&directory.join("chat_template.jinja"))? {
        sources.push((DEFAULT.to_owned(), text));
    }
    let named = directory.join("additional_chat_templates");
    let entries = match std::fs::read_dir(&named) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(sources),
        Err(error) => return Err(Error::io(EscapedPath(&named), error)),
    };
    for entry in entries {
        let path = entry
            .map_err(|error| Error::io(EscapedPath(&named), error))?
            .path();
        let is_template = path
            .extension()
            .is_some_and(|extension| extension == "jinja");
        let name = path.file_stem().and_then(|name| name.to_str());
        // macOS leaves files such as "._tool_use.jinja" on foreign file systems.
        let Some(name) = name.filter(|name| is_template && !name.starts_with('.')) else {
            continue;
        };
        if let Some(text) = read_text(&path)? {
            sources.push((name.to_owned(), text));
        }
    }
    sources.sort();
    Ok(sources)
}

/// A text, a list of `{"name", "template"}`, or an object from name to text.
fn from_value(template: Value) -> Option<Sources> {
    match template {
        Value::String(text) => Some(vec![(DEFAULT.to_owned(), text)]),
        Value::Array(items) => items
            .iter()
            .map(|item| {
                let name = item.get("name")?.as_str()?;
                let text = item.get("template")?.as_str()?;
                Some((name.to_owned(), text.to_owned()))
            })
            .collect(),
        Value::Object(named) => named
            .into_iter()
            .map(|(name, text)| Some((name, text.as_str()?.to_owned())))
            .collect(),
        _ => None,
    }
}
