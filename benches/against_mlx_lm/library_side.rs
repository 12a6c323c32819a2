//! The library, answering requests.

use std::{io, path::Path, thread, time::Instant};

use mlxb::{Event, Flow, GenerateOptions, LoadOptions, Model, Sampling};

use crate::{
    AT_ONCE,
    side::{Answer, Request, Way},
};

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
    let started = Instant::now();
    let answers: Vec<Answer> = match request.way {
        Way::Text | Way::Greedy | Way::Sampled => return answer_once(model, request),
        Way::InTurn => (0..AT_ONCE).map(|_| answer_once(model, request)).collect(),
        Way::Together => thread::scope(|scope| {
            let start = || scope.spawn(|| answer_once(model, request));
            let threads: Vec<_> = (0..AT_ONCE).map(|_| start()).collect();
            let ends = threads.into_iter().map(|thread| thread.join());
            ends.map(|end| end.expect("it does not panic")).collect()
        }),
    };
    Answer {
        ids: answers.into_iter().flat_map(|answer| answer.ids).collect(),
        first_seconds: 0.0,
        rest_seconds: started.elapsed().as_secs_f64(),
    }
}

fn answer_once(model: &Model, request: &Request) -> Answer {
    let mut options = GenerateOptions {
        max_tokens: Some(request.tokens as u64),
        ..GenerateOptions::default()
    };
    if request.way == Way::Sampled {
        // As in mlx_lm_side.py.
        options.sampling = Sampling {
            temperature: 0.8,
            top_p: 0.95,
            min_p: 0.02,
            top_k: 40,
            seed: Some(1),
            ..Sampling::default()
        };
    }
    let started = Instant::now();
    let (mut ids, mut times) = (Vec::new(), Vec::new());
    model
        .generate(None, &request.prompt, &options, &mut |event| {
            if let Event::Token { id, .. } = event {
                ids.push(id);
                times.push(Instant::now());
            }
            Flow::Continue
        })
        .expect("the requests are valid");
    let (first, last) = times
        .first()
        .zip(times.last())
        .expect("at least one token is asked for");
    let second = times.get(1).unwrap_or(first);
    Answer {
        ids,
        first_seconds: (*first - started).as_secs_f64(),
        rest_seconds: (*last - *second).as_secs_f64(),
    }
}
