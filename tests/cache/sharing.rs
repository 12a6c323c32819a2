//! Who gets whose states: models, namespaces, generations at once, and the cap.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Barrier, Mutex, mpsc},
    thread,
    time::Duration,
};

use mlxb::{Cache, CacheOptions, Event, Flow, Kv, LoadOptions, Model};

use crate::{cached, cold, greedy, open, run::run, tiny_model, tokens};

#[test]
fn models_of_one_configuration_never_share() {
    let (one, other) = (tiny_model::load(1), tiny_model::load(2));
    let folder = tempfile::tempdir().unwrap();
    let cache = open(1 << 30, Some(folder.path()));
    let prompt = tokens(1, 40);
    run(&one, None, &prompt, &cached(5, &cache, "same"));
    cache.flush().unwrap();
    let found = cache.peek(&other, "same", &prompt).unwrap();
    assert_eq!((found.memory_prefix, found.disk_prefix), (0, 0));
    let (generated, told) = run(&other, None, &prompt, &cached(5, &cache, "same"));
    assert_eq!(generated.reused_tokens, 0);
    assert_eq!(told.ids, cold(&other, &prompt, 5).ids);
    // The same files loaded again are the same model.
    let again = tiny_model::load(1);
    assert_eq!(
        cache.peek(&again, "same", &prompt).unwrap().memory_prefix,
        39
    );
}

#[test]
fn namespaces_never_share() {
    let model = tiny_model::load(1);
    let cache = open(1 << 30, None);
    let prompt = tokens(1, 40);
    run(&model, None, &prompt, &cached(5, &cache, "ab"));
    for other in ["", "a", "b", "abc", "ab\u{301}", "AB"] {
        let (generated, _) = run(&model, None, &prompt, &cached(1, &cache, other));
        assert_eq!(generated.reused_tokens, 0, "{other}");
    }
    let (generated, _) = run(&model, None, &prompt, &cached(1, &cache, "ab"));
    assert_eq!(generated.reused_tokens, 39);
}

#[test]
fn requests_at_once_with_one_beginning_run_it_once() {
    let model = tiny_model::load(1);
    let cache = open(1 << 30, None);
    let shared = tokens(1, 2000);
    let start = Barrier::new(4);
    let reused: Vec<usize> = thread::scope(|scope| {
        let runs: Vec<_> = (0..4)
            .map(|number| {
                let (model, cache, shared, start) = (&model, &cache, &shared, &start);
                scope.spawn(move || {
                    let prompt = [&shared[..], &tokens(10 + number, 20)[..]].concat();
                    let mut options = cached(8, cache, "");
                    options.prefill_chunk = 256;
                    start.wait();
                    let (generated, told) = run(model, None, &prompt, &options);
                    assert_eq!(told.ids, cold(model, &prompt, 8).ids);
                    generated.reused_tokens
                })
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    let first = reused.iter().filter(|&&reused| reused == 0).count();
    let others = reused.iter().filter(|&&reused| reused == 2000).count();
    assert_eq!((first, others), (1, 3), "{reused:?}");
}

#[test]
fn a_state_in_use_serves_others_while_it_is() {
    let model = tiny_model::load(1);
    let cache = open(1 << 30, None);
    let prompt = tokens(1, 400);
    run(&model, None, &prompt, &cached(1, &cache, ""));
    let longer = [&prompt[..], &tokens(2, 20)[..]].concat();
    let other = [&prompt[..], &tokens(3, 20)[..]].concat();
    let mut inner = None;
    // The first has moved the entry out; the second comes in the middle of its answer.
    let generated = model
        .generate(None, &longer, &cached(6, &cache, ""), &mut |event| {
            if matches!(event, mlxb::Event::Token { .. }) && inner.is_none() {
                inner = Some(run(&model, None, &other, &cached(6, &cache, "")));
            }
            mlxb::Flow::Continue
        })
        .unwrap();
    assert_eq!(generated.reused_tokens, 400);
    let (borrowed, told) = inner.unwrap();
    assert_eq!(borrowed.reused_tokens, 400);
    assert_eq!(told.ids, cold(&model, &other, 6).ids);
    assert_eq!(cache.statistics().unwrap().entries, 2);
}

/// Neither the one that a callback asks for nor anybody else waits for that callback.
#[test]
fn the_first_event_may_ask_for_the_same_prompt() {
    let model = tiny_model::load(1);
    let prompt = tokens(1, 400);
    let reference = cold(&model, &prompt, 5);
    for with_kv in [false, true] {
        let (model, prompt, cache) = (model.clone(), prompt.clone(), open(1 << 30, None));
        let kv = with_kv.then(|| {
            run(&model, None, &prompt[..300], &cached(1, &cache, ""));
            cache.take(&model, "", &prompt).unwrap().unwrap()
        });
        let (sender, done) = mpsc::channel();
        thread::spawn(move || {
            let (rest, options) = match &kv {
                Some(_) => (&prompt[300..], greedy(5)),
                None => (&prompt[..], cached(5, &cache, "")),
            };
            let mut inner = None;
            model
                .generate(kv.as_deref(), rest, &options, &mut |_| {
                    if inner.is_none() {
                        inner = Some(run(&model, None, &prompt, &cached(5, &cache, "")));
                    }
                    Flow::Continue
                })
                .unwrap();
            sender.send(inner.unwrap().1).unwrap();
        });
        let told = done.recv_timeout(Duration::from_secs(60));
        assert_eq!(told.expect("nobody waits").ids, reference.ids);
    }
}

/// What is borrowed is counted as it was lent, not as it was promised.
#[test]
fn the_statistics_tell_how_much_was_borrowed() {
    let model = tiny_model::load(1);
    let cache = open(1 << 30, None);
    let prompt = tokens(1, 3000);
    let mut options = cached(1, &cache, "");
    options.prefill_chunk = 64;
    let mut inner = None;
    model
        .generate(None, &prompt, &options, &mut |event| {
            if matches!(event, Event::Prefill { done: 1.., .. }) && inner.is_none() {
                let taken = cache.take(&model, "", &prompt).unwrap().unwrap();
                let (generated, _) = run(&model, None, &prompt, &cached(1, &cache, ""));
                let counted = cache.statistics().unwrap();
                inner = Some((taken.tokens().unwrap().len(), generated, counted));
            }
            Flow::Continue
        })
        .unwrap();
    let (taken, generated, counted) = inner.unwrap();
    assert!((1..2999).contains(&taken) && (1..2999).contains(&generated.reused_tokens));
    assert_eq!((counted.hits, counted.misses), (2, 1));
    assert_eq!(
        counted.reused_tokens,
        (taken + generated.reused_tokens) as u64
    );
}

/// The same file, the same length, the same time of modification: other weights.
#[test]
fn a_file_that_is_rewritten_under_its_old_time_is_another_model() {
    let (one, two) = (
        tiny_model::folder(1, &serde_json::json!({})),
        tiny_model::folder(2, &serde_json::json!({})),
    );
    let states = tempfile::tempdir().unwrap();
    let load = || Model::load(one.path(), LoadOptions::default()).unwrap();
    let prompt = tokens(1, 40);
    let cache = open(1 << 30, Some(states.path()));
    run(&load(), None, &prompt, &cached(5, &cache, ""));
    cache.flush().unwrap();
    thread::sleep(Duration::from_millis(20));
    let path = one.path().join("model.safetensors");
    let other = fs::read(two.path().join("model.safetensors")).unwrap();
    let before = fs::metadata(&path).unwrap();
    assert_eq!(before.len(), other.len() as u64);
    fs::write(&path, other).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
    let rewritten = load();
    let (generated, told) = run(&rewritten, None, &prompt, &cached(5, &cache, ""));
    assert_eq!(generated.reused_tokens, 0);
    assert_eq!(told.ids, cold(&rewritten, &prompt, 5).ids);
}

#[test]
fn the_cap_holds_after_every_put_and_the_hook_sees_who_goes() {
    let model = tiny_model::load(1);
    let gone = Arc::new(Mutex::new(Vec::new()));
    let (seen, its_model) = (Arc::clone(&gone), model.clone());
    let kv = Kv::new(&model);
    run(&model, Some(&kv), &tokens(0, 10), &greedy(1));
    let one = kv.bytes().unwrap();
    let cache = Cache::open(CacheOptions {
        memory_bytes: 3 * one,
        on_evict: Some(Box::new(move |namespace, kv| {
            assert_eq!(namespace, "here");
            // It is alive: it can go on.
            let (_, told) = run(&its_model, Some(&kv.fork().unwrap()), &[9], &greedy(1));
            assert_eq!(told.ids.len(), 1);
            seen.lock().unwrap().push(kv.tokens().unwrap());
        })),
        ..CacheOptions::default()
    })
    .unwrap();
    for seed in 0..6 {
        let kv = Kv::new(&model);
        run(&model, Some(&kv), &tokens(seed, 10), &greedy(1));
        cache.put("here", &kv).unwrap();
        let statistics = cache.statistics().unwrap();
        assert!(statistics.memory_bytes <= 3 * one);
        assert_eq!(statistics.entries, 3.min(seed + 1));
    }
    let evicted = std::mem::take(&mut *gone.lock().unwrap());
    assert_eq!(evicted, [tokens(0, 10), tokens(1, 10), tokens(2, 10)]);
    // Larger than the cache: seen off at once, and nobody else is.
    let large = Kv::new(&model);
    run(&model, Some(&large), &tokens(9, 1000), &greedy(1));
    cache.put("here", &large).unwrap();
    let statistics = cache.statistics().unwrap();
    assert_eq!((statistics.entries, statistics.oversized), (3, 1));
    assert_eq!(gone.lock().unwrap().len(), 1);
    assert_eq!(cache.trim(one).unwrap(), 2 * one);
    assert_eq!(gone.lock().unwrap().len(), 3);
    cache.clear().unwrap();
    assert_eq!(gone.lock().unwrap().len(), 3, "clear tells nobody");
    assert_eq!(cache.statistics().unwrap().memory_bytes, 0);
}

#[test]
fn a_hook_may_use_the_cache() {
    let model = tiny_model::load(1);
    let slot: Arc<Mutex<Option<Cache>>> = Arc::default();
    let inner = Arc::clone(&slot);
    let kv = Kv::new(&model);
    run(&model, Some(&kv), &tokens(0, 10), &greedy(1));
    let cache = Cache::open(CacheOptions {
        memory_bytes: kv.bytes().unwrap(),
        on_evict: Some(Box::new(move |_, kv| {
            let cache = inner.lock().unwrap().clone().unwrap();
            assert_eq!(cache.statistics().unwrap().entries, 1);
            assert!(kv.tokens().unwrap().len() > 1);
        })),
        ..CacheOptions::default()
    })
    .unwrap();
    *slot.lock().unwrap() = Some(cache.clone());
    cache.put("", &kv).unwrap();
    let second = Kv::new(&model);
    run(&model, Some(&second), &tokens(1, 10), &greedy(1));
    cache.put("", &second).unwrap();
    assert_eq!(cache.statistics().unwrap().evictions, 1);
    *slot.lock().unwrap() = None;
}

/// What the hook was not shown any more is on its way all the same, and nothing is kept for ever.
#[test]
fn a_hook_that_panics_costs_no_state() {
    let model = tiny_model::load(1);
    let states = tempfile::tempdir().unwrap();
    let cache = Cache::open(CacheOptions {
        disk: Some(mlxb::DiskOptions {
            write_after: Duration::MAX,
            ..mlxb::DiskOptions::new(states.path())
        }),
        on_evict: Some(Box::new(|_, _| panic!("a bug of the caller's"))),
        ..CacheOptions::default()
    })
    .unwrap();
    for seed in 0..3 {
        run(&model, None, &tokens(seed, 10), &cached(1, &cache, ""));
    }
    assert!(catch_unwind(AssertUnwindSafe(|| cache.trim(0))).is_err());
    cache.flush().unwrap();
    assert_eq!(cache.statistics().unwrap().writes, 3);
    for seed in 0..3 {
        let found = cache.peek(&model, "", &tokens(seed, 10)).unwrap();
        assert_eq!((found.memory_prefix, found.disk_prefix), (0, 9));
    }
}
