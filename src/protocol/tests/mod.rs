//! Requests as chats and parts as events, without a model.

mod chat;
mod events;
mod messages;
mod mutation;
mod responses;

use serde_json::{Value, json};

use super::{Protocol, Request, failure, turn::ChatTurn};
use crate::{
    cache::{Cache, CacheOptions},
    error::{Kind, Result},
    generate::CacheUse,
};

/// Reads a request.
fn read(protocol: Protocol, request: &Value) -> Result<ChatTurn> {
    Request::read(protocol, &request.to_string(), None).map(|request| request.turn().clone())
}

/// A request with one field more, or changed; null takes it out.
fn with(base: &Value, key: &str, value: Value) -> Value {
    let mut request = base.clone();
    request[key] = value;
    request
}

/// The error that a request meets: of the right kind, and ending with `named`.
fn assert_refused(protocol: Protocol, request: &Value, named: &str) {
    match read(protocol, request) {
        Ok(_) => panic!("accepted: {request}"),
        Err(error) => {
            assert_eq!(error.kind(), Kind::Protocol, "{error}");
            assert!(error.message().ends_with(named), "{error} for {named}");
            if protocol != Protocol::Messages {
                let body = failure::body(protocol, &error);
                let param = body["error"]["param"].as_str().expect("the field is named");
                assert!(error.message().contains(&format!(": {param}")), "{body}");
                assert!(body["error"]["code"].is_string(), "{body}");
            }
        }
    }
}

/// A cache for those who name this namespace.
fn cache_for(namespace: &str) -> CacheUse {
    CacheUse {
        cache: Cache::open(CacheOptions::default()).unwrap(),
        namespace: namespace.into(),
    }
}

/// A tool in the nested form.
fn nested_tool(name: &str) -> Value {
    json!({"type": "function", "function": {
        "name": name,
        "description": "Adds",
        "parameters": {"type": "object", "properties": {"b": {"type": "integer"}, "a": {}}},
    }})
}

/// The same in the flat form of Responses.
fn flat_tool(name: &str) -> Value {
    let mut tool = nested_tool(name)["function"].clone();
    tool["type"] = json!("function");
    tool
}

/// The same as Messages has it.
fn messages_tool(name: &str) -> Value {
    let mut tool = nested_tool(name)["function"].clone();
    tool["input_schema"] = tool["parameters"].take();
    tool
}

#[test]
fn what_is_no_json_or_no_object_is_refused() {
    for protocol in [
        Protocol::Responses,
        Protocol::ChatCompletions,
        Protocol::Messages,
    ] {
        for (text, message) in [
            ("", "request is malformed json at line 1 column 0"),
            (
                "{\"a\":\n 1,,",
                "request is malformed json at line 2 column 4",
            ),
            ("[]", "request is not an object"),
            ("null", "request is not an object"),
        ] {
            let error = Request::read(protocol, text, None).unwrap_err();
            assert_eq!(error.kind(), Kind::Protocol);
            assert_eq!(error.message(), message);
        }
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(Request::read(protocol, &deep, None).is_err());
    }
}

#[test]
fn mistakes_show_nothing_of_the_conversation() {
    let secret = "a secret";
    for request in [
        json!({"messages": secret}),
        json!({"messages": [secret]}),
        json!({"messages": [{"role": "user", "content": {"text": secret}}]}),
        json!({"messages": [{"role": "user", "content": [{"type": "text", "text": [secret]}]}]}),
        json!({"messages": [{"role": "user", "content": "hi"}], "response_format": {"a": secret}}),
        json!({"messages": [{"role": "user", "content": "hi"}], "prediction": {"content": secret}}),
    ] {
        for protocol in [Protocol::ChatCompletions, Protocol::Messages] {
            let error = read(protocol, &request).unwrap_err();
            assert!(!error.message().contains(secret), "{error}");
        }
    }
}
