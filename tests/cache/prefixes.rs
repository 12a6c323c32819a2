//! Which tokens are reused, and that it makes no difference to the answer.

use mlxb::{Flow, Kv};

use crate::{
    cached, cold, difference, greedy, open,
    run::{run, run_while},
    tiny_model, tokens,
};

const MEMORY: u64 = 1 << 30;

#[test]
fn the_same_prompt_again_runs_one_token_and_says_the_same() {
    let model = tiny_model::load(1);
    let cache = open(MEMORY, None);
    let prompt = tokens(1, 50);
    let reference = cold(&model, &prompt, 10);
    for reused in [0, 49, 49] {
        let (generated, told) = run(&model, None, &prompt, &cached(10, &cache, ""));
        assert_eq!(
            (generated.prompt_tokens, generated.reused_tokens),
            (50, reused)
        );
        assert_eq!(told.ids, reference.ids);
        assert!(difference(&told, &reference) < 1e-4);
        assert_eq!(told.prefill.first(), Some(&(0, 50)));
        assert_eq!(told.prefill.last(), Some(&(50, 50)));
    }
    let statistics = cache.statistics().unwrap();
    assert_eq!((statistics.hits, statistics.misses), (2, 1));
    assert_eq!(statistics.reused_tokens, 98);
    assert_eq!(statistics.entries, 1);
}

#[test]
fn a_prompt_of_one_token_uses_nothing() {
    let model = tiny_model::load(1);
    let cache = open(MEMORY, None);
    let prompt = tokens(1, 1);
    let reference = cold(&model, &prompt, 3);
    for _ in 0..2 {
        let (generated, told) = run(&model, None, &prompt, &cached(3, &cache, ""));
        assert_eq!(generated.reused_tokens, 0);
        assert_eq!(told, reference);
    }
}

#[test]
fn the_next_turn_goes_on_where_the_last_ended() {
    let model = tiny_model::load(1);
    let cache = open(MEMORY, None);
    let kv = Kv::new(&model);
    let mut prompt = tokens(1, 300);
    let mut fed = 0;
    for turn in 0..5 {
        let (generated, told) = run(&model, None, &prompt, &cached(20, &cache, ""));
        // The last token was sampled, but not run.
        let expected = if turn == 0 { 0 } else { fed };
        assert_eq!(generated.reused_tokens, expected);
        // The same split without a cache: the same bits.
        let (_, reference) = run(&model, Some(&kv), &prompt[fed..], &greedy(20));
        assert_eq!(told.ids, reference.ids);
        assert_eq!(difference(&told, &reference), 0.0);
        fed = prompt.len() + 19;
        prompt.extend(&told.ids);
        prompt.extend(tokens(100 + turn, 7));
    }
    assert_eq!(
        cache.statistics().unwrap().entries,
        1,
        "each turn supersedes the last"
    );
}

#[test]
fn what_two_prompts_share_is_reused_to_the_token_whatever_the_chunks() {
    let model = tiny_model::load(1);
    for shared in [1, 100, 173, 255, 256, 257, 299] {
        let cache = open(MEMORY, None);
        let mut options = cached(5, &cache, "");
        options.prefill_chunk = 64;
        let first = tokens(1, 300);
        run(&model, None, &first, &options);
        let mut second = first[..shared].to_vec();
        second.extend(tokens(2, 60));
        let (generated, told) = run(&model, None, &second, &options);
        assert_eq!(generated.reused_tokens, shared);
        let reference = cold(&model, &second, 5);
        assert_eq!(told.ids, reference.ids);
        assert!(difference(&told, &reference) < 1e-4);
        // The donor is still there.
        let (generated, told) = run(&model, None, &first, &options);
        assert_eq!(generated.reused_tokens, 299);
        assert_eq!(told.ids, cold(&model, &first, 5).ids);
    }
}

#[test]
fn an_answer_that_comes_back_in_other_tokens_is_reused_up_to_there() {
    let model = tiny_model::load(1);
    let cache = open(MEMORY, None);
    let prompt = tokens(1, 40);
    let (_, told) = run(&model, None, &prompt, &cached(10, &cache, ""));
    // As after a template that drops what was thought: the turn goes on in the middle of it.
    let mut next = [&prompt[..], &told.ids[..4]].concat();
    next.extend(tokens(7, 3));
    next.extend(&told.ids[6..]);
    let (generated, told) = run(&model, None, &next, &cached(10, &cache, ""));
    assert_eq!(generated.reused_tokens, 44);
    assert_eq!(told.ids, cold(&model, &next, 10).ids);
}

#[test]
fn a_cancelled_answer_leaves_a_state_that_its_tokens_match() {
    let model = tiny_model::load(1);
    for stop_at in [1, 2, 5, 9] {
        let cache = open(MEMORY, None);
        let prompt = tokens(1, 30);
        let (_, told) = run_while(&model, None, &prompt, &cached(50, &cache, ""), |told| {
            if told.ids.len() == stop_at {
                Flow::Stop
            } else {
                Flow::Continue
            }
        })
        .unwrap();
        let kept = [&prompt[..], &told.ids[..stop_at - 1]].concat();
        assert!(cache.find_exact(&model, "", &kept).unwrap());
        let (generated, again) = run(&model, None, &prompt, &cached(12, &cache, ""));
        assert_eq!(generated.reused_tokens, 29);
        assert_eq!(again.ids, cold(&model, &prompt, 12).ids);
    }
}

#[test]
fn take_leaves_the_last_token_and_peek_changes_nothing() {
    let model = tiny_model::load(1);
    let cache = open(MEMORY, None);
    let prompt = tokens(1, 30);
    let kv = Kv::new(&model);
    run(&model, Some(&kv), &prompt, &greedy(1));
    cache.put("", &kv).unwrap();
    let before = cache.statistics().unwrap();
    let found = cache.peek(&model, "", &prompt).unwrap();
    assert_eq!((found.memory_prefix, found.disk_prefix), (29, 0));
    assert_eq!(found.bytes, kv.bytes().unwrap());
    assert!(cache.find_exact(&model, "", &prompt).unwrap());
    assert!(!cache.find_exact(&model, "", &prompt[..29]).unwrap());
    assert_eq!(cache.statistics().unwrap(), before);

    let fork = cache.take(&model, "", &prompt).unwrap().unwrap();
    assert_eq!(fork.tokens().unwrap(), prompt[..29]);
    assert_eq!(cache.statistics().unwrap().entries, 1, "the donor stays");
    let longer = [&prompt[..], &tokens(2, 5)[..]].concat();
    let whole = cache.take(&model, "", &longer).unwrap().unwrap();
    assert_eq!(whole.tokens().unwrap(), prompt);
    assert_eq!(cache.statistics().unwrap().entries, 0, "it was handed over");
    assert!(cache.take(&model, "", &tokens(3, 5)).unwrap().is_none());

    // Who is next need not miss it, as long as it is there.
    let again = cache.take(&model, "", &longer).unwrap().unwrap();
    assert_eq!(again.tokens().unwrap(), prompt);
    drop((again, whole));
    assert!(cache.take(&model, "", &longer).unwrap().is_none());
}

#[test]
fn a_state_without_tokens_is_no_entry() {
    let model = tiny_model::load(1);
    let cache = open(MEMORY, None);
    let error = cache.put("", &Kv::new(&model)).unwrap_err();
    assert_eq!(error.kind(), mlxb::Kind::InvalidArgument);
    assert_eq!(cache.statistics().unwrap().entries, 0);
    assert!(cache.take(&model, "", &[]).unwrap().is_none());
    assert!(!cache.find_exact(&model, "", &[]).unwrap());
}

#[test]
fn a_kv_and_a_cache_are_refused_together_and_so_are_foreign_tokens() {
    let model = tiny_model::load(1);
    let cache = open(MEMORY, None);
    let kv = Kv::new(&model);
    let both = model.generate(Some(&kv), &[5], &cached(1, &cache, ""), &mut |_| {
        Flow::Continue
    });
    assert_eq!(both.unwrap_err().kind(), mlxb::Kind::InvalidArgument);
    let error = cache.take(&model, "", &[5, 999_999]).unwrap_err();
    assert_eq!(error.kind(), mlxb::Kind::InvalidArgument);
}
