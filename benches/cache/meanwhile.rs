//! What look-ups take while a long prompt runs, what the cache costs a decoded token, and what
//! sharing a state costs.

use std::{
    thread,
    time::{Duration, Instant},
};

use mlxb::{Flow, Kv, Model, memory};

use crate::{load_real, median, open, options, tokens};

/// As long as the model's context of 8,192 allows.
const LONG: usize = 8190;
const DECODED: u64 = 48;
const ROUNDS: usize = 5;

pub(crate) fn table() {
    let model = load_real();
    decoding(&model);
    sharing(&model);
    looking_up(&model);
}

fn generate(model: &Model, prompt: &[u32], options: &mlxb::GenerateOptions) -> mlxb::Generated {
    model
        .generate(None, prompt, options, &mut |_| Flow::Continue)
        .unwrap_or_else(|error| panic!("{error}"))
}

fn decoding(model: &Model) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let cache = open(Some(folder.path()));
    let mut speeds = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS as u64 {
        for (with, speeds) in [None, Some(&cache)].into_iter().zip(&mut speeds) {
            let mut options = options(DECODED, with);
            let ends = &model.info().eos_tokens;
            options.sampling.penalties.logit_bias =
                ends.iter().map(|&id| (id, f32::NEG_INFINITY)).collect();
            let generated = generate(model, &tokens(50 + round, 40), &options);
            speeds.push((DECODED - 1) as f64 / generated.decode.as_secs_f64());
        }
    }
    let spread = |speeds: &[f64]| {
        let least = speeds.iter().copied().fold(f64::INFINITY, f64::min);
        let most = speeds.iter().copied().fold(0.0, f64::max);
        (most - least) / most
    };
    let [off, on] = speeds;
    println!(
        "decoding, tokens/s (medians of {ROUNDS}): {:.2} without a cache, {:.2} with one and a folder; \
         spread from run to run {:.0} % and {:.0} %\n",
        median(off.clone()),
        median(on.clone()),
        100.0 * spread(&off),
        100.0 * spread(&on)
    );
}

fn sharing(model: &Model) {
    let active = || memory::statistics().map_or(0, |statistics| statistics.active_bytes);
    let cache = open(None);
    let kv = Kv::new(model);
    let run = |prompt: &[u32]| {
        model
            .generate(Some(&kv), prompt, &options(1, None), &mut |_| {
                Flow::Continue
            })
            .unwrap_or_else(|error| panic!("{error}"))
    };
    run(&tokens(1, 1000));
    let entry = kv.bytes().unwrap_or(0);
    let before = active();
    cache.put("", &kv).unwrap_or_else(|error| panic!("{error}"));
    let put = active();
    run(&[1999]);
    println!(
        "a put and a token more: a state of {:.1} MB, {:.1} MB more after the put, {:.1} MB more \
         after the token, since the cache keeps the buffers that the token must not change\n",
        entry as f64 / 1e6,
        put.saturating_sub(before) as f64 / 1e6,
        active().saturating_sub(before) as f64 / 1e6
    );
}

fn looking_up(model: &Model) {
    let cache = open(None);
    for seed in 0..20 {
        generate(model, &tokens(seed, 100), &options(1, Some(&cache)));
    }
    let query = tokens(7, 4000);
    let kvs: Vec<Kv> = (0..2000).map(|_| Kv::new(model)).collect();
    let mut times: [Vec<Duration>; 3] = Default::default();
    thread::scope(|scope| {
        let run = scope.spawn(|| generate(model, &tokens(99, LONG), &options(1, Some(&cache))));
        let mut kvs = kvs.into_iter();
        let mut time = |index: usize, work: &mut dyn FnMut()| {
            let started = Instant::now();
            work();
            times[index].push(started.elapsed());
        };
        while !run.is_finished() {
            time(0, &mut || drop(cache.peek(model, "", &query)));
            time(1, &mut || drop(cache.statistics()));
            time(2, &mut || drop(kvs.next()));
            thread::sleep(Duration::from_millis(5));
        }
    });
    let percentile = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() * 99 / 100].as_secs_f64() * 1e6
    };
    let samples = times[0].len();
    let [peek, stats, free] = &mut times;
    println!(
        "while a prompt of {LONG} tokens runs, the 99th percentile of {samples}, µs (aim: under \
         1000): peek {:.0}, statistics {:.0}, freeing a kv {:.0}",
        percentile(peek),
        percentile(stats),
        percentile(free)
    );
}
