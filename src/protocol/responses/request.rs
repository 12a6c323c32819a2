//! Reading a request of Responses.

use std::{collections::HashSet, sync::Arc};

use serde_json::{Map, Value, json};

use super::items::{Items, input_items, referenced_id};
use crate::{
    error::Result,
    escape::Escaped,
    generate::CacheUse,
    protocol::{
        failure::Mistake,
        fields::{Object, mistake_in},
        sampling::SamplingFields,
        shared,
        tools::{self, ToolChoice, Tools},
        turn::ChatTurn,
    },
};

/// The most tokens whose log-probabilities may be asked for.
const MOST_TOP_LOGPROBS: u64 = 20;

/// Tools that the hosted service brings along. The model is not told of them.
const BUILT_IN: &[&str] = &[
    "file_search",
    "computer",
    "computer_use",
    "computer_use_preview",
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
    "mcp",
    "code_interpreter",
    "programmatic_tool_calling",
    "image_generation",
    "local_shell",
    "shell",
    "apply_patch",
    "tool_search",
];

/// A request, and what of it the form of the answer depends on.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) turn: ChatTurn,
    /// The items of the conversation: those before it, and its own.
    pub(crate) items: Vec<Value>,
    /// Whether a later request may continue it.
    pub(crate) is_stored: bool,
    /// Whether reasoning is told as a summary.
    pub(crate) summarizes: bool,
    /// Fields of the response that repeat the request's.
    pub(crate) echo: Map<String, Value>,
}

impl Request {
    /// Reads it. A conversation that it continues is looked for in `cache`.
    pub(crate) fn read(request: &Value, cache: Option<&CacheUse>) -> Result<Self> {
        let request = Object::root(request)?;
        refuse_what_is_unsupported(&request)?;
        let (tools, function_tools) = read_tools(&request)?;
        let (variables, summarizes) = reasoning(&request)?;
        let (mut items, own) = read_items(&request, cache)?;
        let mut messages = Items::new(request.string("instructions")?);
        for item in &items {
            messages.add(&Object::at("previous_response_id".into(), item)?)?;
        }
        for (index, item) in own.iter().enumerate() {
            messages.add(&Object::at(format!("input[{index}]"), item)?)?;
        }
        items.extend(own);
        let turn = ChatTurn {
            messages: messages.finish()?,
            tools: tools.nested,
            tool_choice: tools.choice,
            parallel_tool_calls: request.boolean("parallel_tool_calls")?.unwrap_or(true),
            template_variables: variables,
            continues_last_message: false,
            max_tokens: request.positive("max_output_tokens")?,
            stop: shared::stop(&request, "stop")?,
            sampling: SamplingFields::read(&request)?,
            logprobs: logprobs(&request)?,
            adapter: shared::adapter(&request)?,
            model: shared::model(&request)?,
        };
        let is_stored = request.boolean("store")?.unwrap_or(true);
        Ok(Self {
            echo: echo(&request, &turn, &function_tools, is_stored),
            turn,
            items,
            is_stored,
            summarizes,
        })
    }
}

fn refuse_what_is_unsupported(request: &Object<'_>) -> Result<()> {
    request.boolean("stream")?;
    request.object("metadata")?;
    request.only("background", &[json!(false)])?;
    request.only("truncation", &[json!("disabled")])?;
    request.only("service_tier", &[json!("auto"), json!("default")])?;
    request.only("context_management", &[json!([])])?;
    for key in ["conversation", "prompt", "moderation"] {
        request.only(key, &[])?;
    }
    for key in ["user", "safety_identifier", "prompt_cache_key"] {
        request.string(key)?;
    }
    request.positive("max_tool_calls")?;
    if let Some(options) = request.object("stream_options")? {
        options.boolean("include_obfuscation")?;
    }
    let Some(text) = request.object("text")? else {
        return Ok(());
    };
    text.only("verbosity", &[json!("medium")])?;
    shared::only_text_format(text.object("format")?)
}

/// The variables that `reasoning` asks the template for, and whether it wants a summary. The
/// most detailed summary is the reasoning itself; a shorter one nobody could write.
fn reasoning(request: &Object<'_>) -> Result<(Map<String, Value>, bool)> {
    let mut variables = Map::new();
    let mut summarizes = false;
    if let Some(reasoning) = request.object("reasoning")? {
        if let Some(effort) = reasoning.string("effort")? {
            variables = tools::reasoning_variables(effort);
        }
        for key in ["summary", "generate_summary"] {
            reasoning.only(key, &[json!("auto"), json!("detailed")])?;
            summarizes |= reasoning.get(key).is_some();
        }
        reasoning.only("mode", &[json!("standard")])?;
        reasoning.only("context", &[json!("auto"), json!("all_turns")])?;
    }
    variables.extend(shared::template_variables(request)?);
    Ok((variables, summarizes))
}

fn logprobs(request: &Object<'_>) -> Result<Option<u32>> {
    let included = request.strings("include")?.unwrap_or_default();
    let top = shared::top_logprobs(request, MOST_TOP_LOGPROBS)?;
    if included.contains(&"message.output_text.logprobs") {
        return Ok(Some(top.unwrap_or(0)));
    }
    Ok(top.filter(|&count| count > 0))
}

/// The items of the conversation that the request continues, and its own.
fn read_items(request: &Object<'_>, cache: Option<&CacheUse>) -> Result<(Vec<Value>, Vec<Value>)> {
    let mut own = input_items(request)?;
    put_in_referenced_items(&mut own, cache)?;
    let Some(id) = request.string("previous_response_id")? else {
        return Ok((Vec::new(), own));
    };
    let before = cache.and_then(|used| used.cache.responses().get(&used.namespace, id));
    let before = before.ok_or_else(|| {
        let (what, place) = ("no such response is kept", "previous_response_id");
        mistake_in(Mistake::NoSuchResponse, what, place, Escaped(id))
    })?;
    Ok((Arc::unwrap_or_clone(before), own))
}

/// Puts the items of kept conversations in the places of references to them.
fn put_in_referenced_items(items: &mut [Value], cache: Option<&CacheUse>) -> Result<()> {
    let ids: HashSet<&str> = items.iter().filter_map(referenced_id).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let kept = cache.map(|used| used.cache.responses().find(&used.namespace, &ids));
    let kept = kept.unwrap_or_default();
    for (index, item) in items.iter_mut().enumerate() {
        let Some(id) = referenced_id(item) else {
            continue;
        };
        *item = kept.get(id).cloned().ok_or_else(|| {
            let place = format!("input[{index}].id");
            mistake_in(Mistake::Value, "no such item is kept", &place, Escaped(id))
        })?;
    }
    Ok(())
}

/// The tools in the nested form, and those of them that the response repeats.
fn read_tools(request: &Object<'_>) -> Result<(Tools, Vec<Value>)> {
    let mut nested = Vec::new();
    let mut functions = Vec::new();
    for tool in request.objects("tools")?.unwrap_or_default() {
        match tool.required_string("type")? {
            "function" => {
                tool.only("defer_loading", &[json!(false)])?;
                tool.only("async", &[json!(false)])?;
                tool.only("allowed_callers", &[json!(["direct"])])?;
                nested.push(tools::nested(&tool, "parameters")?);
                let mut function = tool.fields().clone();
                for key in ["parameters", "strict"] {
                    function.entry(key).or_insert(Value::Null);
                }
                functions.push(Value::Object(function));
            }
            kind if BUILT_IN.contains(&kind) => {}
            "custom" | "namespace" => return Err(tool.unsupported("type")),
            _ => return Err(tool.unknown("type")),
        }
    }
    let mut tools = Tools::new(nested)?;
    match request.get("tool_choice") {
        None => {}
        Some(Value::String(word)) => {
            tools.choose(
                tools::choice_of_word(word, request, "tool_choice")?,
                "tool_choice",
            )?;
        }
        Some(choice) => {
            let choice = Object::at("tool_choice".into(), choice)?;
            choose(&choice, &mut tools)?;
        }
    }
    Ok((tools, functions))
}

fn choose(choice: &Object<'_>, tools: &mut Tools) -> Result<()> {
    match choice.required_string("type")? {
        "function" => {
            let name = choice.required_string("name")?;
            tools.choose(ToolChoice::Named(name.into()), &choice.place_of("name"))
        }
        "allowed_tools" => {
            let mut names = Vec::new();
            for tool in choice.objects("tools")?.unwrap_or_default() {
                tool.only("type", &[json!("function")])?;
                names.push(tool.required_string("name")?);
            }
            let place = choice.place_of("tools");
            tools.allow(&names, &place)?;
            let mode = choice.required_string("mode")?;
            tools.choose(tools::choice_of_word(mode, choice, "mode")?, &place)
        }
        // The tool was dropped, so that nothing could come of it.
        kind if BUILT_IN.contains(&kind) || kind == "custom" => Err(choice.unsupported("type")),
        _ => Err(choice.unknown("type")),
    }
}

/// What a response says of its request.
fn echo(
    request: &Object<'_>,
    turn: &ChatTurn,
    function_tools: &[Value],
    is_stored: bool,
) -> Map<String, Value> {
    let given = |key: &str, unset: Value| request.get(key).cloned().unwrap_or(unset);
    let reasoning = request.get("reasoning");
    let of_reasoning =
        |key: &str| reasoning.map_or(Value::Null, |reasoning| reasoning[key].clone());
    let echo = json!({
        "background": false,
        "instructions": given("instructions", Value::Null),
        "max_output_tokens": turn.max_tokens,
        "max_tool_calls": given("max_tool_calls", Value::Null),
        "metadata": given("metadata", json!({})),
        "parallel_tool_calls": turn.parallel_tool_calls,
        "previous_response_id": given("previous_response_id", Value::Null),
        "prompt_cache_key": given("prompt_cache_key", Value::Null),
        "reasoning": {"effort": of_reasoning("effort"), "summary": of_reasoning("summary")},
        "safety_identifier": given("safety_identifier", Value::Null),
        "service_tier": "default",
        "store": is_stored,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": given("tool_choice", json!("auto")),
        "tools": function_tools,
        "top_logprobs": turn.logprobs.unwrap_or(0),
        "truncation": "disabled",
        "user": given("user", Value::Null),
    });
    match echo {
        Value::Object(echo) => echo,
        _ => Map::new(),
    }
}
