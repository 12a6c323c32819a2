//! Generations on several threads.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use mlxb::{Cancel, Event, Finish, Flow, GenerateOptions, Kind, Kv, Model, memory};

use crate::{
    alone, endless,
    run::{Told, run, run_while},
    tiny_model::{self, Random},
};

const THREADS: usize = 8;
const GENERATIONS: u64 = 200;

/// One of many generations, decided by its number.
struct Job {
    model: usize,
    prompt: Vec<u32>,
    options: GenerateOptions,
    /// Cancelled after so many tokens.
    cancel_after: Option<usize>,
}

impl Job {
    fn new(number: u64) -> Self {
        let mut random = Random(number);
        let length = 1 + random.below(60);
        let max_tokens = 10 + random.below(60);
        let mut options = endless(max_tokens, number);
        options.prefill_chunk = 1 + random.below(40) as usize;
        let sampling = &mut options.sampling;
        match random.below(4) {
            0 => sampling.top_p = 0.9,
            1 => sampling.top_k = 40,
            2 => sampling.xtc_probability = 0.5,
            _ => sampling.logprobs = Some(3),
        }
        Self {
            model: random.below(2) as usize,
            prompt: (0..length).map(|_| random.below(256) as u32 + 2).collect(),
            cancel_after: (random.below(5) < 2).then(|| random.below(max_tokens) as usize),
            options,
        }
    }

    fn run(
        &self,
        models: &[Model],
        active: &AtomicUsize,
        most_active: &AtomicUsize,
    ) -> (Finish, Told) {
        let cancel = Cancel::new();
        let options = GenerateOptions {
            cancel: Some(cancel.clone()),
            ..self.options.clone()
        };
        let mut is_active = false;
        let (generated, told) =
            run_while(&models[self.model], None, &self.prompt, &options, |told| {
                if !is_active && !told.ids.is_empty() {
                    is_active = true;
                    most_active
                        .fetch_max(active.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                }
                if self
                    .cancel_after
                    .is_some_and(|count| told.ids.len() >= count)
                {
                    cancel.request();
                }
                Flow::Continue
            })
            .unwrap();
        active.fetch_sub(usize::from(is_active), Ordering::SeqCst);
        (generated.finish, told)
    }
}

#[test]
fn many_generations_at_once_say_what_each_says_alone() {
    let _alone = alone();
    let models = [tiny_model::load(1), tiny_model::load(2)];
    let solo: Vec<Told> = (0..GENERATIONS)
        .map(|number| {
            let Job {
                model,
                prompt,
                options,
                ..
            } = Job::new(number);
            run(&models[model], None, &prompt, &options).1
        })
        .collect();
    memory::trim(0).unwrap();
    let before = memory::statistics().unwrap();

    let (active, most_active) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let next = Mutex::new(0..GENERATIONS);
    let (ended, cancelled) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let Some(number) = next.lock().unwrap().next() else {
                        break;
                    };
                    let job = Job::new(number);
                    let (finish, told) = job.run(&models, &active, &most_active);
                    let expected = &solo[number as usize];
                    match finish {
                        Finish::Length => {
                            assert_eq!(&told, expected, "generation {number}");
                            ended.fetch_add(1, Ordering::SeqCst);
                        }
                        Finish::Cancelled => {
                            assert_eq!(told.ids, expected.ids[..told.ids.len()]);
                            assert!(expected.text.starts_with(&told.text));
                            assert!(told.ids.len() <= job.cancel_after.unwrap().max(1));
                            cancelled.fetch_add(1, Ordering::SeqCst);
                        }
                        other => panic!("an end that nobody asked for: {other:?}"),
                    }
                }
            });
        }
    });

    let (ended, cancelled) = (ended.into_inner(), cancelled.into_inner());
    let most_active = most_active.into_inner();
    eprintln!(
        "{THREADS} threads, {GENERATIONS} generations: {ended} ran to the end, {cancelled} were \
         cancelled, at most {most_active} active at once"
    );
    assert!(ended >= 100 && cancelled >= 40 && most_active >= 4);
    memory::trim(0).unwrap();
    let after = memory::statistics().unwrap();
    eprintln!(
        "active bytes before and after: {} {}",
        before.active_bytes, after.active_bytes
    );
    assert_eq!(before.active_bytes, after.active_bytes);
    assert_eq!(after.cached_bytes, 0);
}

#[test]
fn a_short_request_does_not_wait_for_a_long_prompt() {
    let _alone = alone();
    let model = tiny_model::load(1);
    let prompt: Vec<u32> = (0..8192).map(|n| 2 + n % 256).collect();
    let chunk = 1024;
    let options = GenerateOptions {
        prefill_chunk: chunk,
        ..endless(1, 1)
    };
    // What is compiled or allocated once is not measured.
    run(&model, None, &prompt[..chunk + 1], &options);

    let chunks_done = AtomicUsize::new(0);
    let (second_may_start, start) = mpsc::channel();
    thread::scope(|scope| {
        let long = scope.spawn(|| {
            let mut times = vec![Instant::now()];
            run_while(&model, None, &prompt, &options, |told| {
                if told.prefill.len() > times.len() {
                    times.push(Instant::now());
                    chunks_done.store(told.prefill.len() - 1, Ordering::SeqCst);
                }
                if times.len() == 3 {
                    let _ = second_may_start.send(());
                }
                Flow::Continue
            })
            .unwrap();
            let chunks = times.windows(2).map(|pair| pair[1] - pair[0]);
            chunks.max().unwrap()
        });
        start.recv().unwrap();
        let started = Instant::now();
        let chunks_before = chunks_done.load(Ordering::SeqCst);
        let mut first = None;
        run_while(&model, None, &[40, 41, 42, 43], &endless(50, 2), |told| {
            if first.is_none() && !told.ids.is_empty() {
                first = Some((started.elapsed(), chunks_done.load(Ordering::SeqCst)));
            }
            Flow::Continue
        })
        .unwrap();
        let (waited, chunks_then) = first.unwrap();
        let longest_chunk = long.join().unwrap();
        let passed = chunks_then - chunks_before;
        eprintln!(
            "first token after {waited:?}, {passed} chunks; the longest chunk took {longest_chunk:?}"
        );
        assert!(chunks_then < 8, "the long prompt was done before");
        assert!(passed <= 2);
        assert!(waited <= 2 * longest_chunk);
    });
}

#[test]
fn a_slow_callback_pauses_its_own_generation_alone() {
    let _alone = alone();
    let model = tiny_model::load(1);
    let expected = run(&model, None, &[9, 8], &endless(40, 1)).1;
    let (slow_began, began) = mpsc::channel();
    let (quick_ended, ended) = mpsc::channel();
    thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let mut waits = Some((slow_began, ended));
            let on_token = |_: &Told| {
                if let Some((slow_began, ended)) = waits.take() {
                    slow_began.send(()).unwrap();
                    // As long as another takes to begin and end; or the engine waits for us.
                    let waited: Result<(), _> = ended.recv_timeout(Duration::from_secs(60));
                    waited.unwrap();
                }
                Flow::Continue
            };
            run_while(&model, None, &[9, 8], &endless(40, 1), on_token).unwrap()
        });
        began.recv().unwrap();
        run(&model, None, &[7], &endless(100, 2));
        quick_ended.send(()).unwrap();
        assert_eq!(slow.join().unwrap().1, expected);
    });
}

#[test]
fn a_callback_may_use_the_library() {
    let _alone = alone();
    let model = tiny_model::load(1);
    let other = run(&model, None, &[5], &endless(30, 3)).1;
    let kv = Kv::new(&model);
    let mut calls = 0;
    let (_, told) = run_while(&model, Some(&kv), &[9, 8], &endless(40, 1), |told| {
        if told.ids.len() == 20 && calls == 0 {
            calls += 1;
            assert!(memory::statistics().unwrap().active_bytes > 0);
            assert_eq!(run(&model, None, &[5], &endless(30, 3)).1, other);
            // Its own state is in use.
            assert_eq!(kv.tokens().unwrap_err().kind(), Kind::Busy);
            let again = model.generate(Some(&kv), &[5], &endless(1, 1), &mut |_| Flow::Continue);
            assert_eq!(again.unwrap_err().kind(), Kind::Busy);
        }
        Flow::Continue
    })
    .unwrap();
    assert_eq!(calls, 1);
    assert_eq!(told, run(&model, None, &[9, 8], &endless(40, 1)).1);
}

#[test]
fn a_callback_that_panics_ends_its_generation_alone() {
    let _alone = alone();
    let model = tiny_model::load(1);
    let kv = Kv::new(&model);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        model.generate(
            Some(&kv),
            &[9],
            &endless(1000, 1),
            &mut |event| match event {
                Event::Token { .. } => std::panic::resume_unwind(Box::new("the caller's own")),
                _ => Flow::Continue,
            },
        )
    }));
    assert_eq!(
        outcome.unwrap_err().downcast_ref(),
        Some(&"the caller's own")
    );
    assert_eq!(kv.tokens().unwrap_err().kind(), Kind::Poisoned);
    run(&model, None, &[9], &endless(10, 1));
}

#[test]
fn a_model_may_be_used_and_freed_on_other_threads_than_its_own() {
    let _alone = alone();
    let model = thread::spawn(|| tiny_model::load(1)).join().unwrap();
    let (model, kv) = thread::spawn(move || {
        let kv = Kv::new(&model);
        run(&model, Some(&kv), &[9], &endless(5, 1));
        (model, kv)
    })
    .join()
    .unwrap();
    thread::spawn(move || drop(model)).join().unwrap();
    assert_eq!(kv.tokens().unwrap().len(), 5);
    thread::spawn(move || drop(kv)).join().unwrap();
}
