//! The official SDKs as clients: their requests are answered by the library, and they read what
//! it answers with their own parsers, types and accumulators.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
};

use mlxb::{Cache, CacheOptions, CacheUse, Cancel, Flow, Model, Protocol, RespondOptions};
use serde_json::{Value, json};

use crate::scripted;

/// Answers a request that an SDK sends.
fn serve(model: &Model, cache: &CacheUse, call: &Value) -> Value {
    let protocol = match call["path"].as_str().unwrap() {
        "/v1/responses" => Protocol::Responses,
        "/v1/chat/completions" => Protocol::ChatCompletions,
        "/v1/messages" => Protocol::Messages,
        path => panic!("nobody asked for {path}"),
    };
    let cancel = Cancel::new();
    let events_before_cancel = call["cancel_after"].as_u64();
    let options = RespondOptions {
        cache: Some(cache.clone()),
        cancel: Some(cancel.clone()),
    };
    let mut events: Vec<Value> = Vec::new();
    let mut collect = |name: &str, data: &str| {
        events.push(json!({"name": name, "data": data}));
        if events_before_cancel == Some(events.len() as u64) {
            cancel.request();
        }
        Flow::Continue
    };
    let is_streamed = call["body"]["stream"] == json!(true);
    let on_event: Option<&mut mlxb::OnWireEvent<'_>> = match is_streamed {
        true => Some(&mut collect),
        false => None,
    };
    match model.respond(protocol, &call["body"].to_string(), &options, on_event) {
        Ok(response) => json!({"events": events, "response": response}),
        Err(error) => json!({"events": events, "error": error.detail()}),
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "a test may say what it compared")]
fn the_official_sdks_understand_every_answer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut python = Command::new(root.join("tools/python"))
        .arg(root.join("tests/protocol/sdk.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let model = scripted::load();
    let cache = CacheUse {
        cache: Cache::open(CacheOptions::default()).unwrap(),
        namespace: "sdk".into(),
    };
    let mut replies = python.stdin.take().unwrap();
    let mut summary = None;
    for line in BufReader::new(python.stdout.take().unwrap()).lines() {
        let call: Value = serde_json::from_str(&line.unwrap()).unwrap();
        if call.get("summary").is_some() {
            summary = Some(call);
            continue;
        }
        writeln!(replies, "{}", serve(&model, &cache, &call)).unwrap();
    }
    drop(replies);
    assert!(python.wait().unwrap().success());
    let summary = summary.unwrap();
    println!("{summary}");
    for (what, least) in [("scenarios", 30), ("objects", 30), ("events", 300)] {
        assert!(
            summary["summary"][what].as_u64().unwrap() >= least,
            "{summary}"
        );
    }
}
