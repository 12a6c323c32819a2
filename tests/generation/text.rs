//! Text out of tokens, through the whole path: bytes become characters, stop strings are cut.

use mlxb::{Finish, GenerateOptions, Sampling};

use crate::{
    run::run,
    tiny_model::{self, VOCABULARY, byte},
};

/// Forbids everything but these bytes.
fn only(bytes: &[u8]) -> Vec<(u32, f32)> {
    let allowed: Vec<u32> = bytes.iter().map(|&b| byte(b)).collect();
    (0..VOCABULARY as u32)
        .filter(|id| !allowed.contains(id))
        .map(|id| (id, f32::NEG_INFINITY))
        .collect()
}

fn saying(bytes: &[u8], max_tokens: u64, stop: &[&str]) -> GenerateOptions {
    let mut sampling = Sampling::default();
    sampling.penalties.logit_bias = only(bytes);
    GenerateOptions {
        max_tokens: Some(max_tokens),
        sampling,
        stop: stop.iter().map(|&stop| stop.to_owned()).collect(),
        ..GenerateOptions::default()
    }
}

#[test]
fn an_answer_cut_inside_a_character_is_valid_text() {
    let model = tiny_model::load(1);
    // The first byte of an emoji, and no more.
    let (generated, told) = run(&model, None, &[9], &saying(&[0xf0], 1, &[]));
    assert_eq!(generated.finish, Finish::Length);
    assert_eq!(told.text, "\u{fffd}");
    // Continuation bytes alone.
    let (_, told) = run(&model, None, &[9], &saying(&[0x9f], 3, &[]));
    assert_eq!(told.text, "\u{fffd}\u{fffd}\u{fffd}");
}

#[test]
fn what_could_begin_a_stop_string_is_held_back_and_comes_at_the_end() {
    let model = tiny_model::load(1);
    let (generated, told) = run(&model, None, &[9], &saying(b"a", 5, &["aaaaaaaa"]));
    assert_eq!(generated.finish, Finish::Length);
    assert_eq!(told.pieces, ["aaaaa"]);

    let (generated, told) = run(&model, None, &[9], &saying(b"a", 9, &["b", "aaaaaaaa"]));
    assert_eq!(generated.finish, Finish::StopString(1));
    assert_eq!((told.text.as_str(), told.ids.len()), ("", 8));
}

#[test]
fn a_stop_string_may_end_with_the_replacement_of_a_broken_character() {
    let model = tiny_model::load(1);
    let (generated, told) = run(&model, None, &[9], &saying(&[0xf0], 1, &["\u{fffd}"]));
    assert_eq!(generated.finish, Finish::StopString(0));
    assert_eq!(told.text, "");
}
