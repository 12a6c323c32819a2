//! Parts as events: each protocol's order, and the final object as their sum.

use proptest::prelude::*;

use super::*;
use crate::{
    error::Error,
    protocol::{
        ids::Ids,
        output::{Ending, Envelope, Part, TokenLogprob, Usage, WireEvent},
    },
};

const USAGE: Usage = Usage {
    input: 10,
    cached: 4,
    output: 6,
    reasoning: 2,
};

fn request(protocol: Protocol, more: Value) -> Value {
    let base = match protocol {
        Protocol::Responses => json!({"input": "Hi"}),
        _ => json!({"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}),
    };
    match (base, more) {
        (Value::Object(mut base), Value::Object(more)) => {
            base.extend(more);
            Value::Object(base)
        }
        (base, _) => base,
    }
}

/// The events and the final object of an answer.
fn answer(
    protocol: Protocol,
    more: Value,
    parts: &[Part],
    ending: &Ending,
) -> (Vec<WireEvent>, Value) {
    let request = request(protocol, more).to_string();
    let envelope = Envelope {
        ids: Ids::fixed(),
        created: 1_700_000_000,
        model: "m".into(),
        temperature: 0.7,
        top_p: 0.9,
    };
    let mut encoder = Request::read(protocol, &request, None)
        .unwrap()
        .encoder(envelope);
    let mut events = Vec::new();
    encoder.begin(USAGE.input, &mut events);
    for part in parts {
        encoder.part(part.clone(), &mut events);
    }
    let whole = encoder.end(ending, USAGE, &mut events);
    (events, whole)
}

fn text(text: &str) -> Part {
    Part::Text(text.into(), Vec::new())
}

fn call(name: &str) -> Part {
    Part::ToolCall {
        name: name.into(),
        arguments: [("a".to_owned(), json!(1))].into_iter().collect(),
    }
}

fn names(events: &[WireEvent]) -> Vec<&str> {
    let mut names: Vec<&str> = events.iter().map(|event| event.name).collect();
    names.dedup();
    names
}

fn all_parts() -> Vec<Part> {
    vec![
        Part::Reasoning("wh".into()),
        Part::Reasoning("y".into()),
        text("He"),
        text("llo"),
        call("add"),
        call("sub"),
    ]
}

#[test]
fn responses_tells_of_each_item_from_its_beginning_to_its_end() {
    let (events, whole) = answer(
        Protocol::Responses,
        json!({}),
        &all_parts(),
        &Ending::Complete,
    );
    let item = |inner: &[&'static str]| {
        let around = ["response.output_item.added", "response.output_item.done"];
        [&around[..1], inner, &around[1..]].concat()
    };
    let content = |delta: &'static str, done: &'static str| {
        let (added, ended) = ("response.content_part.added", "response.content_part.done");
        item(&[added, delta, done, ended])
    };
    let call = item(&[
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
    ]);
    let expected = [
        vec!["response.created", "response.in_progress"],
        content(
            "response.reasoning_text.delta",
            "response.reasoning_text.done",
        ),
        content("response.output_text.delta", "response.output_text.done"),
        call.clone(),
        call,
        vec!["response.completed"],
    ]
    .concat();
    assert_eq!(names(&events), expected);
    let last = &events.last().unwrap().data["response"];
    assert_eq!(*last, whole);
    assert_eq!(whole["status"], "completed");
    assert_eq!(
        (&whole["temperature"], &whole["top_p"]),
        (&json!(0.7), &json!(0.9))
    );
    assert_eq!(whole["output"][0]["content"][0]["text"], "why");
    assert_eq!(whole["output"][1]["content"][0]["text"], "Hello");
    assert_eq!(whole["output"][2]["arguments"], "{\"a\":1}");
    assert_eq!(whole["usage"]["input_tokens_details"]["cached_tokens"], 4);
    assert_eq!(
        whole["usage"]["output_tokens_details"]["reasoning_tokens"],
        2
    );
}

#[test]
fn responses_tells_reasoning_as_a_summary_where_one_is_asked_for() {
    let (events, whole) = answer(
        Protocol::Responses,
        json!({"reasoning": {"summary": "auto"}}),
        &[Part::Reasoning("why".into())],
        &Ending::Complete,
    );
    assert_eq!(
        names(&events)[2..7],
        [
            "response.output_item.added",
            "response.reasoning_summary_part.added",
            "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.done",
            "response.reasoning_summary_part.done",
        ]
    );
    let item = &whole["output"][0];
    assert_eq!(
        item["summary"],
        json!([{"type": "summary_text", "text": "why"}])
    );
    assert_eq!(item["content"], json!([]));
}

#[test]
fn chat_completions_begins_with_the_role_and_ends_with_the_usage() {
    let more = json!({"stream_options": {"include_usage": true}});
    let (events, whole) = answer(
        Protocol::ChatCompletions,
        more,
        &all_parts(),
        &Ending::Complete,
    );
    assert_eq!(names(&events), ["chat.completion.chunk"]);
    let delta = |index: usize| &events[index].data["choices"][0]["delta"];
    assert_eq!(
        *delta(0),
        json!({"role": "assistant", "content": "", "refusal": null})
    );
    assert_eq!(*delta(1), json!({"reasoning_content": "wh"}));
    assert_eq!(*delta(3), json!({"content": "He"}));
    assert_eq!(delta(6)["tool_calls"][0]["index"], 1);
    assert_eq!(events[7].data["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(events[7].data["usage"], Value::Null);
    assert_eq!(events[8].data["choices"], json!([]));
    assert_eq!(events[8].data["usage"], whole["usage"]);
    let message = &whole["choices"][0]["message"];
    assert_eq!(
        (&message["content"], &message["reasoning_content"]),
        (&json!("Hello"), &json!("why"))
    );
    assert_eq!(message["tool_calls"].as_array().unwrap().len(), 2);
    let (events, _) = answer(Protocol::ChatCompletions, json!({}), &[], &Ending::Complete);
    assert!(events.iter().all(|event| event.data.get("usage").is_none()));
}

#[test]
fn messages_keeps_to_its_grammar() {
    let (events, whole) = answer(
        Protocol::Messages,
        json!({}),
        &all_parts(),
        &Ending::Complete,
    );
    let block = [
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
    ];
    let expected = [
        &["message_start"][..],
        &block,
        &block,
        &block,
        &block,
        &["message_delta", "message_stop"],
    ]
    .concat();
    assert_eq!(names(&events), expected);
    assert_eq!(whole["stop_reason"], "tool_use");
    assert_eq!(whole["usage"]["input_tokens"], 6);
    assert_eq!(whole["usage"]["cache_read_input_tokens"], 4);
    let signature = &whole["content"][0]["signature"];
    assert!(events.iter().any(|event| {
        event.data["delta"] == json!({"type": "signature_delta", "signature": signature})
    }));
    assert_eq!(whole["content"][3]["input"], json!({"a": 1}));
}

#[test]
fn an_answer_ends_in_the_words_of_its_protocol() {
    let stop = Ending::StopString("END".into());
    for (ending, chat, messages, status) in [
        (Ending::Complete, "stop", "end_turn", "completed"),
        (stop, "stop", "stop_sequence", "completed"),
        (Ending::MaxTokens, "length", "max_tokens", "incomplete"),
        (
            Ending::ContextFull,
            "length",
            "model_context_window_exceeded",
            "incomplete",
        ),
        (Ending::Cancelled, "length", "max_tokens", "cancelled"),
    ] {
        let whole = |protocol| answer(protocol, json!({}), &[text("Hi")], &ending).1;
        let completion = whole(Protocol::ChatCompletions);
        assert_eq!(completion["choices"][0]["finish_reason"], chat);
        let message = whole(Protocol::Messages);
        assert_eq!(message["stop_reason"], messages);
        let sequence = if messages == "stop_sequence" {
            json!("END")
        } else {
            Value::Null
        };
        assert_eq!(message["stop_sequence"], sequence);
        let response = whole(Protocol::Responses);
        assert_eq!(response["status"], status);
        let item = if status == "completed" {
            status
        } else {
            "incomplete"
        };
        assert_eq!(response["output"][0]["status"], item);
        let reason = &response["incomplete_details"]["reason"];
        assert_eq!(*reason == "max_output_tokens", status == "incomplete");
    }
    // A stop string behind a call leaves the call.
    let stop = Ending::StopString("END".into());
    let stopped = answer(Protocol::ChatCompletions, json!({}), &[call("f")], &stop);
    assert_eq!(stopped.1["choices"][0]["finish_reason"], "tool_calls");
    // A call that came before the cut does not make the answer whole.
    let cut = |protocol| answer(protocol, json!({}), &[call("f")], &Ending::MaxTokens).1;
    let completion = cut(Protocol::ChatCompletions);
    assert_eq!(completion["choices"][0]["finish_reason"], "length");
    assert_eq!(cut(Protocol::Messages)["stop_reason"], "max_tokens");
}

#[test]
fn a_failure_is_told_in_the_words_of_its_protocol() {
    for (protocol, name, message) in [
        (
            Protocol::Responses,
            "response.failed",
            "/response/error/message",
        ),
        (Protocol::ChatCompletions, "error", "/error/message"),
        (Protocol::Messages, "error", "/error/message"),
    ] {
        let read = Request::read(protocol, &request(protocol, json!({})).to_string(), None);
        let mut encoder = read.unwrap().encoder(Envelope {
            ids: Ids::fixed(),
            created: 1,
            model: "m".into(),
            temperature: 0.0,
            top_p: 1.0,
        });
        let mut events = Vec::new();
        encoder.begin(1, &mut events);
        encoder.part(text("Hi"), &mut events);
        encoder.fail(&Error::new(Kind::Backend, "it broke"), &mut events);
        let last = events.last().unwrap();
        assert_eq!(last.name, name);
        assert_eq!(*last.data.pointer(message).unwrap(), "it broke");
    }
}

fn any_part() -> impl Strategy<Value = Part> {
    let token = |token: String| TokenLogprob {
        bytes: token.clone().into_bytes(),
        logprob: -0.5,
        top: vec![(token.into_bytes(), -0.5), (b"x".into(), -2.0)],
    };
    prop_oneof![
        "[a-zü\"\n]{1,4}".prop_map(Part::Reasoning),
        "[a-zü\"\n]{1,4}".prop_map(move |text| Part::Text(text.clone(), vec![token(text)])),
        "[a-z]{1,4}".prop_map(|name| call(&name)),
    ]
}

/// What the deltas in some field add up to.
fn sum(events: &[WireEvent], pointer: &str) -> String {
    let deltas = events
        .iter()
        .filter_map(|event| event.data.pointer(pointer));
    deltas.filter_map(Value::as_str).collect()
}

proptest! {
    #[test]
    fn the_final_object_is_the_sum_of_the_events(
        parts in prop::collection::vec(any_part(), 0..12),
        summarizes in any::<bool>(),
        is_cut in any::<bool>(),
    ) {
        let ending = if is_cut { Ending::MaxTokens } else { Ending::Complete };
        let texts: String = parts.iter().filter_map(|part| match part {
            Part::Text(text, _) => Some(text.as_str()),
            _ => None,
        }).collect();
        let reasoning: String = parts.iter().filter_map(|part| match part {
            Part::Reasoning(text) => Some(text.as_str()),
            _ => None,
        }).collect();
        let calls = parts.iter().filter(|part| matches!(part, Part::ToolCall { .. })).count();

        let (events, whole) =
            answer(Protocol::ChatCompletions, json!({"logprobs": true}), &parts, &ending);
        let message = &whole["choices"][0]["message"];
        prop_assert_eq!(message["content"].as_str(), Some(texts.as_str()));
        prop_assert_eq!(sum(&events, "/choices/0/delta/content"), texts.clone());
        prop_assert_eq!(message["reasoning_content"].as_str().unwrap_or_default(), reasoning.as_str());
        prop_assert_eq!(message["tool_calls"].as_array().map_or(0, Vec::len), calls);
        let of_tokens: String = whole["choices"][0]["logprobs"]["content"].as_array().unwrap().iter()
            .filter_map(|token| token["token"].as_str()).collect();
        prop_assert_eq!(of_tokens, texts.clone());

        let (events, whole) = answer(Protocol::Messages, json!({}), &parts, &ending);
        let mut open = None;
        let mut next = 0;
        for event in &events {
            match event.name {
                "content_block_start" => {
                    prop_assert_eq!((open, &event.data["index"]), (None, &json!(next)));
                    open = Some(next);
                    next += 1;
                }
                "content_block_delta" => prop_assert_eq!(&event.data["index"], &json!(open.unwrap())),
                "content_block_stop" => prop_assert_eq!(&event.data["index"], &json!(open.take().unwrap())),
                _ => prop_assert_eq!(open, None),
            }
        }
        let blocks = whole["content"].as_array().unwrap();
        prop_assert_eq!(blocks.len(), next);
        let of_blocks = |key: &str| blocks.iter().filter_map(|block| block[key].as_str()).collect::<String>();
        prop_assert_eq!(of_blocks("text"), texts.clone());
        prop_assert_eq!(sum(&events, "/delta/text"), texts.clone());
        prop_assert_eq!(of_blocks("thinking"), reasoning.clone());
        prop_assert_eq!(sum(&events, "/delta/thinking"), reasoning.clone());

        let summary = if summarizes { json!("auto") } else { Value::Null };
        let (events, whole) = answer(
            Protocol::Responses,
            json!({"reasoning": {"summary": summary}, "top_logprobs": 1}),
            &parts,
            &ending,
        );
        for (index, event) in events.iter().enumerate() {
            prop_assert_eq!(&event.data["sequence_number"], &json!(index));
            prop_assert_eq!(&event.data["type"], event.name);
        }
        let items = whole["output"].as_array().unwrap();
        let done = events.iter().filter(|event| event.name == "response.output_item.done");
        let done: Vec<&Value> = done.map(|event| &event.data["item"]).collect();
        prop_assert_eq!(done, items.iter().collect::<Vec<_>>());
        prop_assert_eq!(&events.last().unwrap().data["response"], &whole);
        let of_items = |kind: &str, key: &str| items.iter()
            .filter(|item| item["type"] == kind)
            .map(|item| item[key][0]["text"].as_str().unwrap_or_default())
            .collect::<String>();
        prop_assert_eq!(of_items("message", "content"), texts);
        let key = if summarizes { "summary" } else { "content" };
        prop_assert_eq!(of_items("reasoning", key), reasoning);
        prop_assert_eq!(items.iter().filter(|item| item["type"] == "function_call").count(), calls);
    }
}
