//! The real test model in a conversation of three turns, in each protocol.

use mlxb::{
    Cache, CacheOptions, CacheUse, Cancel, Flow, LoadOptions, Model, Protocol, RespondOptions,
};
use serde_json::{Value, json};

use crate::{PROTOCOLS, respond, scripted, streamed_text, support::test_model, text_of};

const QUESTIONS: [&str; 3] = [
    "What is the capital of Japan?",
    "And what is the capital of Italy?",
    "Which of the two cities is larger?",
];
const MAX_TOKENS: u32 = 10;

/// What each protocol calls the conversation so far, ready for the next question.
struct Conversation {
    protocol: Protocol,
    messages: Vec<Value>,
}

impl Conversation {
    fn request(&mut self, question: &str) -> Value {
        self.messages
            .push(json!({"role": "user", "content": question}));
        let (messages, limit) = match self.protocol {
            Protocol::Responses => ("input", "max_output_tokens"),
            _ => ("messages", "max_tokens"),
        };
        json!({"model": "smol", messages: self.messages, limit: MAX_TOKENS, "temperature": 0})
    }

    fn add(&mut self, response: &Value) {
        match self.protocol {
            Protocol::ChatCompletions => {
                self.messages
                    .push(response["choices"][0]["message"].clone());
            }
            Protocol::Messages => {
                let content = &response["content"];
                self.messages
                    .push(json!({"role": "assistant", "content": content}));
            }
            _ => self
                .messages
                .extend_from_slice(response["output"].as_array().unwrap()),
        }
    }
}

/// An empty cache for the conversations of one protocol.
fn cached() -> RespondOptions {
    RespondOptions {
        cache: Some(CacheUse {
            cache: Cache::open(CacheOptions::default()).unwrap(),
            namespace: "test".into(),
        }),
        ..RespondOptions::default()
    }
}

/// Tokens of the prompt and of the answer, and how many of the prompt's were not run again.
fn usage(protocol: Protocol, response: &Value) -> (u64, u64, u64) {
    let number = |pointer: &str| response.pointer(pointer).unwrap().as_u64().unwrap();
    match protocol {
        Protocol::ChatCompletions => (
            number("/usage/prompt_tokens"),
            number("/usage/completion_tokens"),
            number("/usage/prompt_tokens_details/cached_tokens"),
        ),
        Protocol::Messages => {
            let cached = number("/usage/cache_read_input_tokens");
            let prompt = number("/usage/input_tokens") + cached;
            (prompt, number("/usage/output_tokens"), cached)
        }
        _ => (
            number("/usage/input_tokens"),
            number("/usage/output_tokens"),
            number("/usage/input_tokens_details/cached_tokens"),
        ),
    }
}

#[test]
fn three_turns_say_the_same_in_each_protocol_streamed_and_not_cached_and_not() {
    let model = Model::load(test_model("f32"), LoadOptions::default()).unwrap();
    let mut said: Vec<Vec<String>> = Vec::new();
    for protocol in PROTOCOLS {
        let messages = Vec::new();
        let mut conversation = Conversation { protocol, messages };
        let mut texts = Vec::new();
        let (plain, cached) = (RespondOptions::default(), cached());
        let (mut before, mut previous) = (0, Value::Null);
        for question in QUESTIONS {
            let request = conversation.request(question);
            let whole = model.respond(protocol, &request.to_string(), &plain, None);
            let whole: Value = serde_json::from_str(&whole.unwrap()).unwrap();
            let text = text_of(protocol, &whole);
            // With the cache, a conversation of Responses goes on by its last response.
            let next = match protocol {
                Protocol::Responses => {
                    let mut next = request;
                    next["input"] = json!(question);
                    next["previous_response_id"] = previous;
                    next
                }
                _ => request,
            };
            let (events, streamed) = respond(&model, protocol, &next, &cached).unwrap();
            previous = streamed["id"].clone();
            assert_eq!(text_of(protocol, &streamed), text);
            assert_eq!(streamed_text(protocol, &events), text);

            // Everything before this turn's question was run in the turn before.
            let (prompt, answer, reused) = usage(protocol, &streamed);
            assert_eq!(usage(protocol, &whole), (prompt, answer, 0));
            assert!(reused >= before, "{reused} of {prompt}, {before} before");
            before = prompt + answer - 1;

            conversation.add(&whole);
            texts.push(text);
        }
        said.push(texts);
    }
    assert_eq!(said[0][0], "The capital of Japan is Tokyo.");
    assert!(said[0][1].contains("Rome"), "{said:?}");
    assert_eq!(said[1], said[0]);
    assert_eq!(said[2], said[0]);
}

#[test]
fn a_cancelled_turn_keeps_what_was_said_and_the_next_one_goes_on_from_it() {
    let model = Model::load(test_model("f32"), LoadOptions::default()).unwrap();
    for protocol in PROTOCOLS {
        let messages = Vec::new();
        let mut conversation = Conversation { protocol, messages };
        let cancel = Cancel::new();
        let mut options = cached();
        options.cancel = Some(cancel.clone());
        let request = conversation.request("Count from one to ten.");
        let mut events: Vec<(String, Value)> = Vec::new();
        let response = model.respond(
            protocol,
            &request.to_string(),
            &options,
            Some(&mut |name, json| {
                events.push((name.to_owned(), serde_json::from_str(json).unwrap()));
                if streamed_text(protocol, &events).len() > 2 {
                    cancel.request();
                }
                Flow::Continue
            }),
        );
        let response: Value = serde_json::from_str(&response.unwrap()).unwrap();
        let text = text_of(protocol, &response);
        assert!(text.len() > 2);
        assert_eq!(streamed_text(protocol, &events), text);
        let (last, event) = events.last().unwrap();
        match protocol {
            Protocol::ChatCompletions => {
                assert_eq!(event["choices"][0]["finish_reason"], "length");
            }
            Protocol::Messages => assert_eq!(last, "message_stop"),
            _ => assert_eq!(event["response"], response),
        }
        let (prompt, answer, _) = usage(protocol, &response);
        assert!(answer < u64::from(MAX_TOKENS));

        conversation.add(&response);
        let request = conversation.request("Go on.");
        options.cancel = None;
        let (_, response) = respond(&model, protocol, &request, &options).unwrap();
        assert!(usage(protocol, &response).2 >= prompt);
    }
}

/// A template that leaves the reasoning of earlier turns out, as many do.
const FORGETFUL: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n\
    {{ message.content.split('<think>')[0].split('</think>')[-1] }}<|im_end|>\n{% endfor %}\
    <|im_start|>assistant\n{{ script }}";

#[test]
fn a_turn_whose_reasoning_is_left_out_later_is_reused_up_to_it() {
    let answer: &[&str] = &["<think>\n", "Let me see.", "\n</think>\n\n", "It is noon."];
    let model = scripted::load_with(FORGETFUL, &[('a', answer)]);
    let options = cached();
    let mut messages = vec![json!({"role": "user", "content": "What time is it?"})];
    let mut before = 0;
    for question in ["And now?", "And now, again?"] {
        let request = json!({"messages": messages, "chat_template_kwargs": {"script": "a"}});
        let protocol = Protocol::ChatCompletions;
        let (_, response) = respond(&model, protocol, &request, &options).unwrap();
        assert_eq!(text_of(protocol, &response), "It is noon.");
        let (prompt, _, reused) = usage(protocol, &response);
        // All but what asked for the answer: the letter, which stands where the reasoning was.
        assert!(
            reused + 1 >= before,
            "{reused} of {prompt}, {before} before"
        );
        before = prompt;
        messages.push(response["choices"][0]["message"].clone());
        messages.push(json!({"role": "user", "content": question}));
    }
    assert!(before > 0);
}

#[test]
fn the_bytes_of_the_tokens_are_the_text() {
    let model = Model::load(test_model("f32"), LoadOptions::default()).unwrap();
    let question = "Repeat exactly: 日本 🙂 ok";
    let request = json!({"messages": [{"role": "user", "content": question}], "max_tokens": 16,
        "logprobs": true, "top_logprobs": 3});
    let options = RespondOptions::default();
    let (events, whole) = respond(&model, Protocol::ChatCompletions, &request, &options).unwrap();
    let bytes = |tokens: &Value| -> Vec<u8> {
        let tokens = tokens.as_array().into_iter().flatten();
        let bytes = tokens.flat_map(|token| token["bytes"].as_array().unwrap());
        bytes.map(|byte| byte.as_u64().unwrap() as u8).collect()
    };
    let choice = &whole["choices"][0];
    let content = choice["message"]["content"].as_str().unwrap();
    assert!(content.contains("日本"), "{content}");
    let tokens = &choice["logprobs"]["content"];
    let whole = bytes(tokens);
    // The limit may cut a character.
    assert_eq!(String::from_utf8_lossy(&whole), content);
    let parts: Vec<u8> = events
        .iter()
        .flat_map(|(_, event)| bytes(&event["choices"][0]["logprobs"]["content"]))
        .collect();
    assert_eq!(parts, whole);
    let split = |token: &Value| std::str::from_utf8(&bytes(&json!([token]))).is_err();
    assert!(tokens.as_array().unwrap().iter().any(split));
    for token in tokens.as_array().unwrap() {
        assert_eq!(token["top_logprobs"].as_array().unwrap().len(), 3);
        assert_eq!(token["logprob"], token["top_logprobs"][0]["logprob"]);
    }
}
