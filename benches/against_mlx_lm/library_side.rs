//! The library, answering requests.

use std::{io, path::Path, time::Instant};

use mlxb::{Event, Flow, GenerateOptions, LoadOptions, Model};

use crate::side::{Answer, Request};

/// Answers the requests on the standard input until it ends.
pub(crate) fn serve(model: &Path) {
    let model = Model::load(model, LoadOptions::default()).expect("the test models load");
    for line in io::stdin().lines() {
        let line = line.expect("the input can be read");
        let request: Request = serde_json::from_str(&line).expect("the comparing side's own form");
        let answer = answer(&model, &request);
        println!("{}", serde_json::to_string(&answer).expect("plain data"));
    }
}

fn answer(model: &Model, request: &Request) -> Answer {
    let options = GenerateOptions {
        max_tokens: Some(request.tokens as u64),
        ..GenerateOptions::default()
    };
    let started = Instant::now();
    let (mut ids, mut first, mut last) = (Vec::new(), None, started);
    model
        .generate(None, &request.prompt, &options, &mut |event| {
            if let Event::Token { id, .. } = event {
                ids.push(id);
                last = Instant::now();
                first.get_or_insert(last);
            }
            Flow::Continue
        })
        .expect("the requests are valid");
    let first = first.expect("at least one token is asked for");
    Answer {
        ids,
        first_seconds: (first - started).as_secs_f64(),
        rest_seconds: (last - first).as_secs_f64(),
    }
}
