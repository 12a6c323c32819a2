//! Reading a request of Chat Completions.

use serde_json::{Value, json};

use crate::{
    error::Result,
    protocol::{
        conversation::{Assistant, Call, Conversation, text_of},
        failure::Mistake,
        fields::{Object, mistake},
        sampling::SamplingFields,
        shared,
        tools::{self, ToolChoice, Tools},
        turn::ChatTurn,
    },
};

/// The most tokens whose log-probabilities may be asked for.
const MOST_TOP_LOGPROBS: u64 = 20;

/// Parts of a message, with the field that holds their text.
const TEXT: &[(&str, &str)] = &[("text", "text")];
const ASSISTANT_TEXT: &[(&str, &str)] = &[("text", "text"), ("refusal", "refusal")];

/// A request, and what of it the form of the answer depends on.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) turn: ChatTurn,
    /// Whether the events end with one about usage.
    pub(crate) includes_usage: bool,
}

impl Request {
    /// Reads it.
    pub(crate) fn read(request: &Value) -> Result<Self> {
        let request = Object::root(request)?;
        refuse_what_is_unsupported(&request)?;
        let tools = read_tools(&request)?;
        let max_tokens = request.positive("max_tokens")?;
        let max_completion_tokens = request.positive("max_completion_tokens")?;
        let mut variables = serde_json::Map::new();
        if let Some(effort) = request.string("reasoning_effort")? {
            variables = tools::reasoning_variables(effort);
        }
        variables.extend(shared::template_variables(&request)?);
        Ok(Self {
            includes_usage: includes_usage(&request)?,
            turn: ChatTurn {
                messages: read_messages(&request)?,
                tools: tools.nested,
                tool_choice: tools.choice,
                parallel_tool_calls: request.boolean("parallel_tool_calls")?.unwrap_or(true),
                template_variables: variables,
                continues_last_message: false,
                max_tokens: max_completion_tokens.or(max_tokens),
                stop: shared::stop(&request, "stop")?,
                sampling: SamplingFields::read(&request)?,
                logprobs: logprobs(&request)?,
                adapter: shared::adapter(&request)?,
                model: shared::model(&request)?,
            },
        })
    }
}

fn refuse_what_is_unsupported(request: &Object<'_>) -> Result<()> {
    request.boolean("stream")?;
    request.boolean("store")?;
    request.only("n", &[json!(1)])?;
    request.only("modalities", &[json!(["text"]), json!([])])?;
    request.only("service_tier", &[json!("auto"), json!("default")])?;
    request.only("verbosity", &[json!("medium")])?;
    request.only("functions", &[json!([])])?;
    request.only("function_call", &[json!("auto"), json!("none")])?;
    for key in ["audio", "prediction", "web_search_options", "moderation"] {
        request.only(key, &[])?;
    }
    shared::only_text_format(request.object("response_format")?)
}

fn includes_usage(request: &Object<'_>) -> Result<bool> {
    let Some(options) = request.object("stream_options")? else {
        return Ok(false);
    };
    options.boolean("include_obfuscation")?;
    Ok(options.boolean("include_usage")?.unwrap_or(false))
}

fn logprobs(request: &Object<'_>) -> Result<Option<u32>> {
    let wanted = request.boolean("logprobs")?.unwrap_or(false);
    let top = shared::top_logprobs(request, MOST_TOP_LOGPROBS)?;
    match (wanted, top) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(mistake(Mistake::Value, "needs logprobs", "top_logprobs")),
    }
}

fn read_tools(request: &Object<'_>) -> Result<Tools> {
    let mut nested = Vec::new();
    for tool in request.objects("tools")?.unwrap_or_default() {
        match tool.required_string("type")? {
            "function" => {
                let function = tool.object("function")?;
                let function = function.ok_or_else(|| tool.missing("function"))?;
                nested.push(tools::nested(&function, "parameters")?);
            }
            "custom" => return Err(tool.unsupported("type")),
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
    Ok(tools)
}

fn choose(choice: &Object<'_>, tools: &mut Tools) -> Result<()> {
    let inner = |key: &str| -> Result<Object<'_>> {
        choice.object(key)?.ok_or_else(|| choice.missing(key))
    };
    match choice.required_string("type")? {
        "function" => {
            let function = inner("function")?;
            let name = function.required_string("name")?;
            tools.choose(ToolChoice::Named(name.into()), &function.place_of("name"))
        }
        "allowed_tools" => {
            let allowed = inner("allowed_tools")?;
            let mut names = Vec::new();
            for tool in allowed.objects("tools")?.unwrap_or_default() {
                let function = tool.object("function")?;
                let function = function.ok_or_else(|| tool.missing("function"))?;
                names.push(function.required_string("name")?);
            }
            tools.allow(&names, &allowed.place_of("tools"))?;
            let mode = allowed.required_string("mode")?;
            tools.choose(
                tools::choice_of_word(mode, &allowed, "mode")?,
                &allowed.place_of("tools"),
            )
        }
        "custom" => Err(choice.unsupported("type")),
        _ => Err(choice.unknown("type")),
    }
}

fn read_messages(request: &Object<'_>) -> Result<Vec<Value>> {
    let mut conversation = Conversation::default();
    for message in request.objects("messages")?.unwrap_or_default() {
        match message.required_string("role")? {
            "system" | "developer" => conversation.system(&text_of(&message, "content", TEXT)?),
            "user" => {
                conversation.user(
                    &text_of(&message, "content", TEXT)?,
                    message.string("name")?,
                );
            }
            "assistant" => conversation.assistant(assistant(&message)?),
            "tool" => {
                let id = message.required_string("tool_call_id")?;
                let text = text_of(&message, "content", TEXT)?;
                conversation.tool(id, &text, false, &message.place_of("tool_call_id"))?;
            }
            "function" => return Err(message.unsupported("role")),
            _ => return Err(message.unknown("role")),
        }
    }
    conversation.finish("messages")
}

fn assistant(message: &Object<'_>) -> Result<Assistant> {
    message.only("audio", &[])?;
    message.only("function_call", &[])?;
    let mut turn = Assistant {
        name: message.string("name")?.map(str::to_owned),
        ..Assistant::default()
    };
    for key in ["reasoning_content", "reasoning", "thinking"] {
        if let Some(reasoning) = message.string(key)? {
            turn.reason(reasoning);
            break;
        }
    }
    if message.get("content").is_some() {
        turn.text = text_of(message, "content", ASSISTANT_TEXT)?;
    }
    if let Some(refusal) = message.string("refusal")? {
        turn.text.push_str(refusal);
    }
    for call in message.objects("tool_calls")?.unwrap_or_default() {
        match call.string("type")? {
            None | Some("function") => {}
            Some("custom") => return Err(call.unsupported("type")),
            Some(_) => return Err(call.unknown("type")),
        }
        let function = call.object("function")?;
        let function = function.ok_or_else(|| call.missing("function"))?;
        turn.calls.push(Call {
            id: call.required_string("id")?.into(),
            name: function.required_string("name")?.into(),
            arguments: shared::arguments(&function)?,
        });
    }
    Ok(turn)
}
