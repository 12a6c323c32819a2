//! Reading a request of Messages.

use serde_json::{Map, Value, json};

use crate::{
    error::Result,
    protocol::{
        conversation::{Assistant, Call, Conversation, part_text, text_of, unsupported_part},
        failure::Mistake,
        fields::{Object, mistake},
        sampling::SamplingFields,
        shared,
        tools::{self, ToolChoice, Tools},
        turn::ChatTurn,
    },
};

/// Blocks that hold text, with the field that it is in.
const TEXT: &[(&str, &str)] = &[("text", "text")];

/// A request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) turn: ChatTurn,
}

impl Request {
    /// Reads it.
    pub(crate) fn read(request: &Value) -> Result<Self> {
        let request = Object::root(request)?;
        refuse_what_is_unsupported(&request)?;
        let (tools, parallel_tool_calls) = read_tools(&request)?;
        // With 0 the prompt is run into the cache, and nothing is said.
        let max_tokens = request.count("max_tokens")?;
        let mut variables = reasoning(&request)?;
        variables.extend(shared::template_variables(&request)?);
        let (messages, continues_last_message) = read_messages(&request)?;
        Ok(Self {
            turn: ChatTurn {
                messages,
                tools: tools.nested,
                tool_choice: tools.choice,
                parallel_tool_calls,
                template_variables: variables,
                continues_last_message,
                max_tokens: Some(max_tokens.ok_or_else(|| request.missing("max_tokens"))?),
                stop: shared::stop(&request, "stop_sequences")?,
                sampling: SamplingFields::read(&request)?,
                logprobs: None,
                adapter: shared::adapter(&request)?,
                model: shared::model(&request)?,
            },
        })
    }
}

fn refuse_what_is_unsupported(request: &Object<'_>) -> Result<()> {
    request.boolean("stream")?;
    request.only("service_tier", &[json!("auto"), json!("standard_only")])?;
    request.only("speed", &[json!("standard")])?;
    request.only("mcp_servers", &[json!([])])?;
    request.only("fallbacks", &[json!("default"), json!([])])?;
    for key in ["container", "compaction", "thread", "output_format"] {
        request.only(key, &[])?;
    }
    refuse_edits(request)
}

/// Nothing is taken out of a conversation here. That all thinking stays is a way to ask for that.
fn refuse_edits(request: &Object<'_>) -> Result<()> {
    let Some(management) = request.object("context_management")? else {
        return Ok(());
    };
    for edit in management.objects("edits")?.unwrap_or_default() {
        match edit.required_string("type")? {
            "clear_thinking_20251015" if edit.get("keep").is_some() => {
                edit.only("keep", &[json!("all"), json!({"type": "all"})])?;
            }
            _ => return Err(edit.unsupported("type")),
        }
    }
    Ok(())
}

/// What `thinking` and `output_config` ask of the template. A budget of thinking tokens is a
/// wish that templates cannot pass on.
fn reasoning(request: &Object<'_>) -> Result<Map<String, Value>> {
    let mut variables = Map::new();
    if let Some(output) = request.object("output_config")? {
        output.only("format", &[])?;
        output.only("task_budget", &[])?;
        if let Some(effort) = output.string("effort")? {
            variables = tools::reasoning_variables(effort);
        }
    }
    if let Some(thinking) = request.object("thinking")? {
        thinking.only("display", &[json!("summarized")])?;
        let is_on = match thinking.required_string("type")? {
            "enabled" => {
                let budget = thinking.positive("budget_tokens")?;
                budget.ok_or_else(|| thinking.missing("budget_tokens"))?;
                true
            }
            "adaptive" => true,
            "disabled" => {
                variables = tools::reasoning_variables("none");
                false
            }
            "between_tools" => return Err(thinking.unsupported("type")),
            _ => return Err(thinking.unknown("type")),
        };
        variables.extend(tools::thinking_variables(is_on));
    }
    Ok(variables)
}

fn read_tools(request: &Object<'_>) -> Result<(Tools, bool)> {
    let mut nested = Vec::new();
    for tool in request.objects("tools")?.unwrap_or_default() {
        // Tools of other types are run by the hosted service, or have a schema that only its
        // models know.
        tool.only("type", &[json!("custom")])?;
        tool.only("defer_loading", &[json!(false)])?;
        tool.only("allowed_callers", &[json!(["direct"])])?;
        if tool.get("input_schema").is_none() {
            return Err(tool.missing("input_schema"));
        }
        nested.push(tools::nested(&tool, "input_schema")?);
    }
    let mut tools = Tools::new(nested)?;
    let Some(choice) = request.object("tool_choice")? else {
        return Ok((tools, true));
    };
    let place = choice.place_of("type");
    match choice.required_string("type")? {
        "auto" => {}
        "none" => tools.choose(ToolChoice::None, &place)?,
        "any" => tools.choose(ToolChoice::Required, &place)?,
        "tool" => {
            let name = choice.required_string("name")?;
            tools.choose(ToolChoice::Named(name.into()), &choice.place_of("name"))?;
        }
        _ => return Err(choice.unknown("type")),
    }
    let is_single = choice.boolean("disable_parallel_tool_use")?;
    Ok((tools, !is_single.unwrap_or(false)))
}

/// The messages, and whether the answer continues the last one.
fn read_messages(request: &Object<'_>) -> Result<(Vec<Value>, bool)> {
    let mut conversation = Conversation::default();
    if request.get("system").is_some() {
        conversation.system(&text_of(request, "system", TEXT)?);
    }
    let messages = request.objects("messages")?.unwrap_or_default();
    if messages.is_empty() {
        return Err(mistake(Mistake::Missing, "no messages", "messages"));
    }
    // The service takes several messages of one role in a row for one turn.
    let mut assistant = Assistant::default();
    let mut is_assistants = false;
    for message in &messages {
        let role = message.required_string("role")?;
        if role != "assistant" && is_assistants {
            conversation.assistant(std::mem::take(&mut assistant));
        }
        is_assistants = role == "assistant";
        match role {
            "system" => conversation.system(&text_of(message, "content", TEXT)?),
            "user" => read_user(message, &mut conversation)?,
            "assistant" => read_assistant(message, &mut assistant)?,
            _ => return Err(message.unknown("role")),
        }
    }
    let continues = is_assistants && assistant.calls.is_empty() && !assistant.text.is_empty();
    if is_assistants {
        conversation.assistant(assistant);
    }
    Ok((conversation.finish("messages")?, continues))
}

fn read_user(message: &Object<'_>, conversation: &mut Conversation) -> Result<()> {
    if let Some(Value::String(text)) = message.get("content") {
        conversation.user_turn(text);
        return Ok(());
    }
    let blocks = message.objects("content")?;
    let blocks = blocks.ok_or_else(|| message.missing("content"))?;
    if blocks.is_empty() {
        conversation.user_turn("");
    }
    for block in &blocks {
        match block.required_string("type")? {
            "tool_result" => {
                let text = match block.get("content") {
                    None => String::new(),
                    Some(_) => text_of(block, "content", TEXT)?,
                };
                let is_error = block.boolean("is_error")?.unwrap_or(false);
                let place = block.place_of("tool_use_id");
                let id = block.required_string("tool_use_id")?;
                conversation.tool(id, &text, is_error, &place)?;
            }
            _ => conversation.user_turn(part_text(block, TEXT)?),
        }
    }
    Ok(())
}

fn read_assistant(message: &Object<'_>, turn: &mut Assistant) -> Result<()> {
    if let Some(Value::String(text)) = message.get("content") {
        turn.say(text);
        return Ok(());
    }
    let blocks = message.objects("content")?;
    for block in blocks.ok_or_else(|| message.missing("content"))? {
        match block.required_string("type")? {
            "text" => turn.say(block.required_string("text")?),
            "thinking" => turn.reason(block.required_string("thinking")?),
            "tool_use" => turn.calls.push(Call {
                id: block.required_string("id")?.into(),
                name: block.required_string("name")?.into(),
                arguments: match block.object("input")? {
                    Some(input) => Value::Object(input.fields().clone()),
                    None => return Err(block.missing("input")),
                },
            }),
            kind => return Err(unsupported_part(&block, kind)),
        }
    }
    Ok(())
}
