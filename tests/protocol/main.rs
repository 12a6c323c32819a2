//! The wire protocols: requests in, events and final objects out, as the official SDKs of OpenAI
//! and Anthropic see them.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod calls;
mod channels;
mod conversation;
mod ending;
mod public_bugs;
mod scripted;
mod sdk;
#[path = "../support/mod.rs"]
mod support;

use mlxb::{Flow, Model, Protocol, RespondOptions, Result};
use serde_json::Value;

const PROTOCOLS: [Protocol; 3] = [
    Protocol::Responses,
    Protocol::ChatCompletions,
    Protocol::Messages,
];

/// The events of an answer with their names, and its final object.
fn respond(
    model: &Model,
    protocol: Protocol,
    request: &Value,
    options: &RespondOptions,
) -> Result<(Vec<(String, Value)>, Value)> {
    let mut events = Vec::new();
    let response = model.respond(
        protocol,
        &request.to_string(),
        options,
        Some(&mut |name, json| {
            events.push((name.to_owned(), serde_json::from_str(json).unwrap()));
            Flow::Continue
        }),
    )?;
    Ok((events, serde_json::from_str(&response).unwrap()))
}

/// The text of a final object.
fn text_of(protocol: Protocol, response: &Value) -> String {
    let texts = |parts: &Value| -> String {
        let parts = parts.as_array().unwrap().iter();
        parts.filter_map(|part| part["text"].as_str()).collect()
    };
    match protocol {
        Protocol::ChatCompletions => {
            let content = &response["choices"][0]["message"]["content"];
            content.as_str().unwrap().to_owned()
        }
        Protocol::Messages => texts(&response["content"]),
        _ => {
            let items = response["output"].as_array().unwrap().iter();
            let messages = items.filter(|item| item["type"] == "message");
            messages.map(|item| texts(&item["content"])).collect()
        }
    }
}

/// The text that the events of an answer add up to.
fn streamed_text(protocol: Protocol, events: &[(String, Value)]) -> String {
    let pointer = match protocol {
        Protocol::ChatCompletions => "/choices/0/delta/content",
        Protocol::Messages => "/delta/text",
        _ => "/delta",
    };
    let deltas = events.iter().filter(|(name, _)| match protocol {
        Protocol::Responses => name == "response.output_text.delta",
        _ => true,
    });
    let texts = deltas.filter_map(|(_, event)| event.pointer(pointer)?.as_str());
    texts.collect()
}
