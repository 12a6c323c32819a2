//! Requests with random damage: none brings a reader down.

use std::time::{Duration, Instant};

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};

use super::*;

/// Seconds to go on for; `MLXB_FUZZ_SECONDS` says otherwise.
const SECONDS: u64 = 2;

/// What to put in the place of a value.
fn replacement(random: &mut TestRng, seeds: &[Value]) -> Value {
    match random.next_u32() % 12 {
        0 => Value::Null,
        1 => json!(random.next_u32().is_multiple_of(2)),
        2 => json!(random.next_u64() as i64),
        3 => json!(f64::from_bits(random.next_u64())),
        4 => json!(""),
        5 => json!("user"),
        6 => json!("\u{0}\u{202e}\u{1f600}"),
        7 => json!([]),
        8 => json!({}),
        9 => json!([[random.next_u32(), 1]]),
        10 => json!({"5": -1}),
        _ => {
            let seed = &seeds[random.next_u32() as usize % seeds.len()];
            any_part(seed, random).clone()
        }
    }
}

/// A value somewhere inside.
fn any_part<'a>(value: &'a Value, random: &mut TestRng) -> &'a Value {
    let inner: Vec<&Value> = match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => return value,
    };
    if inner.is_empty() || random.next_u32().is_multiple_of(4) {
        return value;
    }
    any_part(inner[random.next_u32() as usize % inner.len()], random)
}

/// Changes something somewhere inside.
fn mutate(value: &mut Value, random: &mut TestRng, seeds: &[Value]) {
    let choice = random.next_u32() as usize;
    match value {
        Value::Array(items) if !items.is_empty() && !choice.is_multiple_of(5) => {
            let index = choice / 5 % items.len();
            match random.next_u32() % 6 {
                0 => drop(items.remove(index)),
                1 => items.insert(index, items[index].clone()),
                2 => items.reverse(),
                _ => mutate(&mut items[index], random, seeds),
            }
        }
        Value::Object(fields) if !fields.is_empty() && !choice.is_multiple_of(5) => {
            let keys: Vec<String> = fields.keys().cloned().collect();
            let key = &keys[choice / 5 % keys.len()];
            match random.next_u32() % 6 {
                0 => drop(fields.shift_remove(key)),
                1 => {
                    let other = &keys[random.next_u32() as usize % keys.len()];
                    let moved = fields.shift_remove(key).unwrap_or_default();
                    fields.insert(other.clone(), moved);
                }
                _ => mutate(fields.get_mut(key).expect("one of its keys"), random, seeds),
            }
        }
        _ => *value = replacement(random, seeds),
    }
}

#[test]
fn no_request_brings_a_reader_down() {
    let seconds = std::env::var("MLXB_FUZZ_SECONDS").ok();
    let seconds = seconds
        .and_then(|text| text.parse().ok())
        .unwrap_or(SECONDS);
    let seeds: Vec<Value> = serde_json::from_str(include_str!("seeds.json")).unwrap();
    let cache = cache_for("");
    let before = vec![json!({"role": "user", "content": "Hi"})];
    cache.cache.responses().put("", "resp_1", before);
    let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut runs, mut read) = (0_u64, 0_u64);
    while Instant::now() < end {
        let mut request = seeds[random.next_u32() as usize % seeds.len()].clone();
        for _ in 0..random.next_u32() % 6 {
            mutate(&mut request, &mut random, &seeds);
        }
        let mut text = request.to_string();
        // Now and then what is no JSON at all.
        if random.next_u32().is_multiple_of(16) {
            let mut bytes = text.into_bytes();
            let index = random.next_u32() as usize % bytes.len();
            bytes[index] = random.next_u32() as u8;
            text = String::from_utf8_lossy(&bytes).into_owned();
        }
        for protocol in [
            Protocol::Responses,
            Protocol::ChatCompletions,
            Protocol::Messages,
        ] {
            match Request::read(protocol, &text, Some(&cache)) {
                Ok(request) => {
                    read += 1;
                    assert!(!request.turn().messages.is_empty());
                    assert!(request.turn().to_chat().is_object());
                }
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Protocol, "{error}");
                    assert!(!error.message().contains('\n'));
                }
            }
        }
        runs += 1;
    }
    assert!(runs > 50 && read > runs / 10, "{read} of {runs} were read");
}
