//! The budget.

use std::{sync::mpsc, thread};

use mlxb::{Cache, CacheOptions, CacheUse, Flow, GenerateOptions, Kind, Kv, memory};

use crate::{
    alone, endless,
    run::{run, run_while},
    tiny_model,
};

const ALLOCATOR_CACHE: u64 = 256 << 20;
const MEGABYTE: u64 = 1 << 20;

/// Sets the budget to what is active and so much more, until it is dropped.
struct Budget(u64);

impl Budget {
    fn beside_active(bytes: u64) -> Self {
        let budget = memory::statistics().unwrap().active_bytes + bytes;
        memory::set_limits(budget, ALLOCATOR_CACHE).unwrap();
        Self(budget)
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        memory::set_limits(0, ALLOCATOR_CACHE).unwrap();
    }
}

#[test]
fn a_request_over_budget_is_refused_before_anything_runs() {
    let _alone = alone();
    let model = tiny_model::load(1);
    let kv = Kv::new(&model);
    let first = run(&model, Some(&kv), &[9, 8, 7], &endless(10, 1)).1;
    let before = kv.tokens().unwrap();
    let last = &first.ids[9..];
    let expected = run(&model, Some(&kv.fork().unwrap()), last, &endless(10, 2)).1;

    let budget = Budget::beside_active(4 * MEGABYTE);
    // 12,000 tokens of 512 bytes of KV state.
    let peak = memory::statistics().unwrap().peak_bytes;
    let outcome = run_while(&model, Some(&kv), last, &endless(12_000, 2), |told| {
        assert!(told.ids.is_empty() && told.prefill == [(0, 1)]);
        Flow::Continue
    });
    let error = outcome.unwrap_err();
    eprintln!("{error}");
    assert_eq!(error.kind(), Kind::OverBudget);
    assert!(error.message().starts_with("the request needs "), "{error}");
    assert!(
        error
            .message()
            .ends_with(&format!("over the budget of {}", budget.0)),
        "{error}"
    );
    assert_eq!(memory::statistics().unwrap().peak_bytes, peak);

    // The state is as it was, and the next request is fine.
    assert_eq!(kv.tokens().unwrap(), before);
    assert_eq!(run(&model, Some(&kv), last, &endless(10, 2)).1, expected);
}

#[test]
fn a_long_chunk_counts_and_a_short_one_fits() {
    let _alone = alone();
    let model = tiny_model::load(1);
    let prompt = vec![5; 4000];
    let options = |prefill_chunk| GenerateOptions {
        prefill_chunk,
        ..endless(1, 1)
    };
    let _budget = Budget::beside_active(16 * MEGABYTE);
    let outcome = run_while(&model, None, &prompt, &options(2048), |_| Flow::Continue);
    assert_eq!(outcome.unwrap_err().kind(), Kind::OverBudget);
    run(&model, None, &prompt, &options(64));
}

#[test]
fn a_limit_that_is_not_reserved_need_not_fit() {
    let _alone = alone();
    let model = tiny_model::load(1);
    let options = |reserves_max_tokens| GenerateOptions {
        reserves_max_tokens,
        ..endless(12_000, 1)
    };
    let _budget = Budget::beside_active(4 * MEGABYTE);
    let outcome = run_while(&model, None, &[9], &options(true), |_| Flow::Continue);
    assert_eq!(outcome.unwrap_err().kind(), Kind::OverBudget);
    let begun = run_while(&model, None, &[9], &options(false), |told| {
        if told.ids.len() == 10 {
            Flow::Stop
        } else {
            Flow::Continue
        }
    });
    assert_eq!(begun.unwrap().1.ids.len(), 10);
}

#[test]
fn requests_at_once_do_not_get_the_same_memory_twice() {
    let _alone = alone();
    let model = tiny_model::load(1);
    // Of 12,000 tokens' state one fits, two do not.
    let _budget = Budget::beside_active(10 * MEGABYTE);
    let (began, first_began) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(|| {
            let released = released;
            run_while(&model, None, &[9], &endless(12_000, 1), |told| {
                if told.ids.len() == 1 {
                    let _ = began.send(());
                    let _ = released.recv();
                    return Flow::Stop;
                }
                Flow::Continue
            })
            .unwrap();
        });
        first_began.recv().unwrap();
        let refused = run_while(&model, None, &[9], &endless(12_000, 2), |_| Flow::Continue);
        assert_eq!(refused.unwrap_err().kind(), Kind::OverBudget);
        // One that fits beside it is not held up.
        run(&model, None, &[9], &endless(100, 2));
        drop(release);
    });
    let stop = run_while(&model, None, &[9], &endless(12_000, 2), |told| {
        if told.ids.is_empty() {
            Flow::Continue
        } else {
            Flow::Stop
        }
    });
    stop.unwrap();
}

#[test]
fn states_return_their_memory() {
    let _alone = alone();
    let model = tiny_model::load(1);
    run(&model, None, &[9], &endless(10, 1));
    let before = memory::statistics().unwrap().active_bytes;
    let kv = Kv::new(&model);
    run(&model, Some(&kv), &[9], &endless(700, 1));
    let held = memory::statistics().unwrap().active_bytes - before;
    // Three steps of 256 positions, 512 bytes each.
    assert_eq!(held, 3 * 256 * 512);
    let fork = kv.fork().unwrap();
    assert_eq!(memory::statistics().unwrap().active_bytes - before, held);
    drop((kv, fork));
    assert_eq!(memory::statistics().unwrap().active_bytes, before);
}

#[test]
fn a_refused_request_puts_back_what_it_took_from_the_cache() {
    let _alone = alone();
    let model = tiny_model::load(1);
    let cache = Cache::open(CacheOptions::default()).unwrap();
    let cached = |max_tokens| GenerateOptions {
        cache: Some(CacheUse {
            cache: cache.clone(),
            namespace: String::new(),
        }),
        ..endless(max_tokens, 1)
    };
    let prompt = [9, 8, 7, 6];
    run(&model, None, &prompt, &cached(1));
    let before = cache.statistics().unwrap();
    let budget = Budget::beside_active(MEGABYTE);
    let longer = [&prompt[..], &[5, 4]].concat();
    let refused = run_while(&model, None, &longer, &cached(12_000), |_| Flow::Continue);
    assert_eq!(refused.unwrap_err().kind(), Kind::OverBudget);
    drop(budget);
    let after = cache.statistics().unwrap();
    assert_eq!(after.entries, before.entries);
    assert_eq!(after.memory_bytes, before.memory_bytes);
    let generated = run(&model, None, &longer, &cached(1)).0;
    assert_eq!(generated.reused_tokens, prompt.len());
}

/// What is left of a long state, when nothing was run behind it, does not hold the long one.
#[test]
fn the_beginning_of_a_state_does_not_keep_the_rest() {
    let _alone = alone();
    let model = tiny_model::load(1);
    let cache = Cache::open(CacheOptions::default()).unwrap();
    let cached = |max_tokens| GenerateOptions {
        cache: Some(CacheUse {
            cache: cache.clone(),
            namespace: String::new(),
        }),
        ..endless(max_tokens, 1)
    };
    let long: Vec<u32> = (0..4000).map(|n| 2 + n * 7 % 250).collect();
    run(&model, None, &[9], &endless(10, 1));
    let before = memory::statistics().unwrap().active_bytes;
    run(&model, None, &long, &cached(1));
    assert_eq!(
        run(&model, None, &long[..101], &cached(0)).0.reused_tokens,
        100
    );
    let beginning = cache.statistics().unwrap().memory_bytes;
    assert_eq!(cache.statistics().unwrap().entries, 2);
    cache.trim(beginning - 4000 * 512).unwrap();
    let left = cache.statistics().unwrap();
    assert_eq!(left.entries, 1);
    assert!(left.memory_bytes < 512 * 512, "{}", left.memory_bytes);
    let active = memory::statistics().unwrap().active_bytes - before;
    assert_eq!(active, left.memory_bytes);
}
