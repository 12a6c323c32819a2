//! Which part of a prompt the next turn repeats.
//!
//! Templates rewrite history: they drop reasoning, merge messages, print the last turn in
//! another way. So the next turn's prompt is tried out, with an answer and a question that
//! say nothing, and compared.

use serde_json::{Value, json};

use super::request::Request;
use super::template::ChatTemplate;
use super::tokens::Prompt;
use crate::error::Result;
use crate::tokenizer::Tokenizer;

/// How many of `ids`, the ids of `prompt`, every possible next turn begins with.
pub(super) fn count(
    template: &ChatTemplate,
    tokenizer: &Tokenizer,
    request: &Request,
    prompt: &Prompt,
    ids: &[u32],
) -> Result<usize> {
    // What the model adds to a text may merge with its end when it is encoded again.
    let mut stable = match request.continues {
        Some(_) => {
            tokenizer
                .division_before(prompt.text.len(), &prompt.text, ids)?
                .0
        }
        None => ids.len(),
    };
    let mut followed = false;
    let mut without_prompt = request.clone();
    without_prompt.adds_generation_prompt = false;
    let mut candidates = vec![without_prompt];
    candidates.extend(next_turns(request));
    for (index, candidate) in candidates.iter().enumerate() {
        // A template may refuse a turn that it does not expect.
        let Ok(next) = Prompt::render(template, candidate) else {
            continue;
        };
        followed |= index > 0;
        let control = template.control(candidate)?;
        let common = if prompt.has_quotes() || next.has_quotes() {
            common_count(ids, &next.encode(control, tokenizer)?)
        } else {
            common_count_of_texts(tokenizer, &prompt.text, ids, &next.text)?
        };
        stable = stable.min(common);
    }
    // Without any next turn to compare with, nothing is known to stay.
    Ok(if followed { stable } else { 0 })
}

/// The requests that may follow.
fn next_turns(request: &Request) -> Vec<Request> {
    const ANSWER: &str = "a";
    let question = json!({"role": "user", "content": "b"});
    let with = |messages: Vec<Value>| {
        let mut next = request.clone();
        next.messages.extend(messages);
        next.adds_generation_prompt = true;
        next.continues = None;
        next
    };
    let last_role = request
        .messages
        .last()
        .and_then(|message| message.get("role"))
        .and_then(Value::as_str);
    if last_role == Some("assistant") {
        let mut next = with(vec![question]);
        if let Some(field) = &request.continues {
            let answer = next.messages.iter_mut().rev().nth(1);
            if let Some(Value::String(text)) = answer.and_then(|answer| answer.get_mut(field)) {
                text.push_str(ANSWER);
            }
        }
        return vec![next];
    }
    let answer = json!({"role": "assistant", "content": ANSWER});
    let mut next = vec![with(vec![answer, question])];
    if request.tools.is_some() {
        let call = json!({"id": "call00000", "type": "function",
            "function": {"name": "a", "arguments": {}}});
        let calls = json!({"role": "assistant", "content": "", "tool_calls": [call]});
        let result =
            json!({"role": "tool", "name": "a", "tool_call_id": "call00000", "content": "b"});
        next.push(with(vec![calls, result]));
    }
    next
}

fn common_count(left: &[u32], right: &[u32]) -> usize {
    left.iter()
        .zip(right)
        .take_while(|(left, right)| left == right)
        .count()
}

/// The common beginning of the ids of two texts, of which those of the first are known.
/// Only what follows the last added token before the texts part is encoded again.
fn common_count_of_texts(
    tokenizer: &Tokenizer,
    text: &str,
    ids: &[u32],
    next: &str,
) -> Result<usize> {
    let common = text
        .bytes()
        .zip(next.bytes())
        .take_while(|(left, right)| left == right)
        .count();
    if common == text.len() && common == next.len() {
        return Ok(ids.len());
    }
    let (known, at) = tokenizer.division_before(common, text, ids)?;
    let rest = tokenizer.encode(&next[at..], false)?;
    Ok(known + common_count(&ids[known..], &rest))
}
