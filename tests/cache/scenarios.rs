//! What mlx-lm's own tests of its prompt caches try, tried here.
//!
//! | mlx-lm's scenario | here |
//! |---|---|
//! | a cache is saved and loaded, with metadata | files of KV state, compared with mlx-lm's live |
//! | rotating, chunked, quantized, recurrent and nested caches are saved and loaded | such layers do not exist yet |
//! | generating goes on from a cache | `prefixes::the_next_turn_goes_on_where_the_last_ended` |
//! | a cache is trimmed, by more than it has too | [`a_state_goes_back_and_says_the_same_again`]; more than there is, is an error that changes nothing: who asks for it is mistaken |
//! | a trimmed cache generates the same again | [`a_state_goes_back_and_says_the_same_again`] |
//! | a copy is not changed by its origin | `tests/c/kv.c`: a fork and its origin go separate ways |
//! | masks, and caches of a batch | compared through the logits; there are no batches |
//! | LRU: the nearest cache is found, exact, shorter, longer | [`the_nearest_state_is_found`] |
//! | LRU: the least recently inserted or fetched goes first, by number and by bytes | [`the_least_recently_used_goes_first`]; by bytes only: a number of caches says nothing about memory |
//! | LRU: caches of models do not mix | `sharing::models_of_one_configuration_never_share` |
//! | LRU: system prompts outlive answers | a prefix is refreshed with what continues it; what continues it serves in its place |
//! | a second request with the same beginning | `prefixes::what_two_prompts_share_is_reused_to_the_token_whatever_the_chunks` |

use mlxb::{Kv, Model};

use crate::{cold, greedy, open, run::run, tiny_model, tokens};

fn state(model: &Model, tokens: &[u32]) -> Kv {
    let kv = Kv::new(model);
    run(model, Some(&kv), tokens, &greedy(1));
    kv
}

#[test]
fn a_state_goes_back_and_says_the_same_again() {
    let model = tiny_model::load(1);
    let prompt = tokens(1, 20);
    let kv = state(&model, &prompt);
    let first = run(&model, Some(&kv), &[9], &greedy(6)).1;
    kv.trim(20).unwrap();
    assert_eq!(run(&model, Some(&kv), &[9], &greedy(6)).1, first);
    assert!(kv.trim(1000).is_err());
    kv.trim(20).unwrap();
    assert_eq!(run(&model, Some(&kv), &[9], &greedy(6)).1, first);
    kv.trim(0).unwrap();
    assert_eq!(
        run(&model, Some(&kv), &prompt, &greedy(3)).1,
        cold(&model, &prompt, 3)
    );
}

#[test]
fn the_nearest_state_is_found() {
    let model = tiny_model::load(1);
    let cache = open(1 << 30, None);
    let base = tokens(1, 24);
    let found = |prompt: &[u32]| {
        let kv = cache.take(&model, "", prompt).unwrap();
        kv.map(|kv| kv.tokens().unwrap())
    };
    let longer = [&base[..], &tokens(2, 5)[..]].concat();
    assert_eq!(found(&base), None);
    cache.put("", &state(&model, &base)).unwrap();
    // Shorter than the prompt: all of it, handed over.
    assert_eq!(found(&longer), Some(base.clone()));
    assert_eq!(found(&longer), None);
    // Longer than the prompt, or the same: gone back to.
    cache.put("", &state(&model, &longer)).unwrap();
    assert_eq!(found(&base), Some(base[..23].to_vec()));
    assert_eq!(found(&longer), Some(longer[..28].to_vec()));
    // Parting in the middle.
    let other = [&base[..10], &tokens(3, 9)[..]].concat();
    assert_eq!(found(&other), Some(base[..10].to_vec()));
    assert_eq!(cache.statistics().unwrap().entries, 1);
}

#[test]
fn the_least_recently_used_goes_first() {
    let model = tiny_model::load(1);
    let one = state(&model, &tokens(0, 4)).bytes().unwrap();
    let cache = open(2 * one, None);
    let holds = |seed| cache.find_exact(&model, "", &tokens(seed, 4)).unwrap();
    let put = |seed| cache.put("", &state(&model, &tokens(seed, 4))).unwrap();
    put(1);
    put(2);
    // Looking is not using.
    assert!(holds(1));
    cache.peek(&model, "", &tokens(1, 4)).unwrap();
    put(3);
    assert_eq!([1, 2, 3].map(holds), [false, true, true]);
    drop(cache.take(&model, "", &tokens(2, 4)).unwrap());
    put(4);
    assert_eq!([2, 3, 4].map(holds), [true, false, true]);
    put(2);
    put(5);
    assert_eq!([2, 4, 5].map(holds), [true, false, true]);
}
