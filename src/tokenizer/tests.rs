//! Small tokenizers of every decoder kind, and what must hold for all of them.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A tokenizer of the given parts, as a model folder would define it.
pub(crate) fn build(model: &Value, decoder: &Value, added: &[(&str, bool)]) -> Tokenizer {
    build_with(model, decoder, added, &TokenizerConfig::default())
}

fn build_with(
    model: &Value,
    decoder: &Value,
    added: &[(&str, bool)],
    config: &TokenizerConfig,
) -> Tokenizer {
    let base = model["vocab"]
        .as_object()
        .map(serde_json::Map::len)
        .or(model["vocab"].as_array().map(Vec::len))
        .unwrap();
    let added: Vec<Value> = added
        .iter()
        .enumerate()
        .map(|(index, (content, special))| {
            json!({"id": base + index, "content": content, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": special})
        })
        .collect();
    let pre_tokenizer = match decoder["type"].as_str() {
        Some("ByteLevel") => {
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})
        }
        _ => Value::Null,
    };
    let text = json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": null, "pre_tokenizer": pre_tokenizer, "post_processor": null,
        "decoder": decoder, "model": model})
    .to_string();
    Tokenizer::build(&text, config).unwrap()
}

fn bpe(tokens: &[String]) -> Value {
    let vocab: serde_json::Map<String, Value> = tokens
        .iter()
        .enumerate()
        .map(|(id, token)| (token.clone(), json!(id)))
        .collect();
    json!({"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
        "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": true, "vocab": vocab, "merges": []})
}

fn wordpiece(tokens: &[&str]) -> Value {
    let vocab: serde_json::Map<String, Value> = tokens
        .iter()
        .enumerate()
        .map(|(id, token)| ((*token).to_owned(), json!(id)))
        .collect();
    json!({"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100, "vocab": vocab})
}

fn unigram(tokens: &[&str]) -> Value {
    let vocab: Vec<Value> = tokens.iter().map(|token| json!([token, -1.0])).collect();
    json!({"type": "Unigram", "unk_id": 0, "byte_fallback": true, "vocab": vocab})
}

fn byte_level_token(bytes: &[u8]) -> String {
    let alphabet: Vec<char> = {
        let mut characters: Vec<char> =
            tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet()
                .into_iter()
                .collect();
        characters.sort_unstable_by_key(|character| {
            byte_level::bytes_of(&character.to_string()).expect("a character of the alphabet")
        });
        characters
    };
    bytes
        .iter()
        .map(|byte| alphabet[usize::from(*byte)])
        .collect()
}

const BYTE_LEVEL: &str =
    r#"{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}"#;

/// All single bytes, then pieces that split characters in every way.
pub(crate) fn byte_level() -> Tokenizer {
    let mut tokens: Vec<String> = (0..=255_u8).map(|byte| byte_level_token(&[byte])).collect();
    for bytes in [
        b" the".as_slice(),
        b"\xF0\x9F",
        b"\x98\x8A",
        b"\xE4\xBD",
        b"\xA0\xE5\xA5",
        b"\xBD",
        b"\xF0\x9F\x98\x8A",
        b"\n\n",
        b" \xE2",
        b"\xED\xA0\x80",
        b"a\xC3",
    ] {
        let token = byte_level_token(bytes);
        if !tokens.contains(&token) {
            tokens.push(token);
        }
    }
    build(
        &bpe(&tokens),
        &serde_json::from_str(BYTE_LEVEL).unwrap(),
        &[
            ("<|end|>", true),
            ("<think>", false),
            ("  ", false),
            ("🦊", false),
        ],
    )
}

/// Bytes, `<s>` as BOS and a few control tokens.
pub(crate) fn with_bos() -> Tokenizer {
    let tokens: Vec<String> = (0..=255_u8).map(|byte| byte_level_token(&[byte])).collect();
    let config = TokenizerConfig {
        named: vec![("bos_token".to_owned(), AddedToken::from("<s>", true))],
        ..TokenizerConfig::default()
    };
    build_with(
        &bpe(&tokens),
        &serde_json::from_str(BYTE_LEVEL).unwrap(),
        &[
            ("<s>", true),
            ("<|im_start|>", true),
            ("<|im_end|>", true),
            ("<think>", false),
            ("<tool>", false),
            ("<b>", false),
        ],
        &config,
    )
}

fn byte_fallback_tokens() -> Vec<String> {
    let mut tokens = vec!["<unk>".to_owned()];
    tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    tokens.extend(
        [
            "▁", "▁▁", "▁Hello", "Hello", "▁world", "w", ".", "▁.", "你", "é", "<0xZZ>", "▁a▁b",
            "\n",
        ]
        .map(str::to_owned),
    );
    tokens
}

fn metaspace() -> Value {
    json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "})
}

/// The tokenizers of the property test, each with a name.
fn all() -> Vec<(&'static str, Arc<Tokenizer>)> {
    let added = [("<s>", true), ("</s>", true), ("<tool>", false)];
    let fallback = bpe(&byte_fallback_tokens());
    let words = [
        "[UNK]", "un", "##aff", "##able", ".", "##.", ",", "do", "not", "n", "'", "s", "'s",
        "##'s", "!", "?", "é", "##é", "' ", "d", "##o not",
    ];
    let pieces = [
        "<unk>", "▁", "▁Hello", "Hello", "▁.", ".", "▁n't", "▁'s", "▁'", "▁not", "'", "▁你",
        "<0xE4>", "<0xBD>", "<0xA0>", "▁do",
    ];
    let clean_up = TokenizerConfig {
        clean_up_spaces: true,
        ..TokenizerConfig::default()
    };
    let strip = json!({"type": "Strip", "content": " ", "start": 1, "stop": 0});
    let sequence = |decoders: &[Value]| json!({"type": "Sequence", "decoders": decoders});
    let fallback_decoder = json!({"type": "ByteFallback"});
    let fuse = json!({"type": "Fuse"});
    let byte_level_decoder: Value = serde_json::from_str(BYTE_LEVEL).unwrap();
    let real_metaspace = |scheme: &str| json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true});
    let word_piece =
        |cleanup: bool| json!({"type": "WordPiece", "prefix": "##", "cleanup": cleanup});
    let ctc =
        json!({"type": "CTC", "pad_token": "w", "word_delimiter_token": "▁", "cleanup": true});
    let suffix = json!({"type": "BPEDecoder", "suffix": "o"});
    let replace = |pattern: &str, content: &str| json!({"type": "Replace", "pattern": {"String": pattern}, "content": content});
    let regex =
        |pattern: &str| json!({"type": "Replace", "pattern": {"Regex": pattern}, "content": "_"});
    let one =
        |name, model: &Value, decoder: &Value| (name, Arc::new(build(model, decoder, &added)));
    vec![
        ("byte-level", Arc::new(byte_level())),
        one(
            "llama 2",
            &fallback,
            &sequence(&[
                metaspace(),
                fallback_decoder.clone(),
                fuse.clone(),
                strip.clone(),
            ]),
        ),
        one(
            "gemma",
            &fallback,
            &sequence(&[metaspace(), fallback_decoder.clone(), fuse.clone()]),
        ),
        one(
            "metaspace after bytes",
            &fallback,
            &sequence(&[fallback_decoder.clone(), real_metaspace("always")]),
        ),
        one("metaspace", &unigram(&pieces), &real_metaspace("first")),
        one(
            "metaspace never",
            &unigram(&pieces),
            &real_metaspace("never"),
        ),
        (
            "metaspace with clean-up",
            Arc::new(build_with(
                &unigram(&pieces),
                &real_metaspace("always"),
                &added,
                &clean_up,
            )),
        ),
        one("wordpiece", &wordpiece(&words), &word_piece(true)),
        (
            "wordpiece with both clean-ups",
            Arc::new(build_with(
                &wordpiece(&words),
                &word_piece(false),
                &added,
                &clean_up,
            )),
        ),
        one("ctc", &fallback, &ctc),
        one("word suffix", &fallback, &suffix),
        one("no decoder", &wordpiece(&words), &Value::Null),
        one(
            "fused wordpiece",
            &wordpiece(&words),
            &sequence(&[fuse.clone(), word_piece(true)]),
        ),
        one(
            "fused metaspace",
            &fallback,
            &sequence(&[fuse.clone(), real_metaspace("always")]),
        ),
        one("fused ctc", &fallback, &sequence(&[fuse.clone(), ctc])),
        one(
            "fused suffix",
            &fallback,
            &sequence(&[fuse.clone(), suffix]),
        ),
        one(
            "fused bytes",
            &fallback,
            &sequence(&[fuse.clone(), fallback_decoder.clone()]),
        ),
        one(
            "bytes twice",
            &fallback,
            &sequence(&[byte_level_decoder.clone(), byte_level_decoder.clone()]),
        ),
        one(
            "text after bytes",
            &fallback,
            &sequence(&[byte_level_decoder, replace("lo", "01"), regex("w+"), strip]),
        ),
        one(
            "tokens replaced",
            &fallback,
            &sequence(&[replace("", "-"), regex("[el]+"), replace("▁", "")]),
        ),
    ]
}

/// The crate's own decoding, and the clean-up of transformers.
fn reference(tokenizer: &Tokenizer, name: &str, ids: &[u32], skip_special: bool) -> String {
    let is_empty = ids
        .iter()
        .all(|&id| tokenizer.decodable(id, skip_special).is_none());
    if name == "word suffix" && is_empty {
        // The crate subtracts one from the number of tokens.
        return String::new();
    }
    let text = tokenizer.inner.decode(ids, skip_special).unwrap();
    if !name.contains("clean-up") {
        return text;
    }
    text.replace(" .", ".")
        .replace(" ?", "?")
        .replace(" !", "!")
        .replace(" ,", ",")
        .replace(" ' ", "'")
        .replace(" n't", "n't")
        .replace(" 'm", "'m")
        .replace(" 's", "'s")
        .replace(" 've", "'ve")
        .replace(" 're", "'re")
}

fn stream(tokenizer: &Arc<Tokenizer>, ids: &[u32], skip_special: bool) -> String {
    let mut detokenizer = Detokenizer::new(tokenizer, skip_special);
    let mut text: String = ids.iter().map(|&id| detokenizer.push(id)).collect();
    text.push_str(&detokenizer.finish());
    text
}

#[test]
fn streamed_text_equals_decoded_text_for_any_ids() {
    for (name, tokenizer) in all() {
        let size = u32::try_from(tokenizer.vocab_size()).unwrap();
        // Ids above the vocabulary have no text; the last ones are the added tokens. Runs of
        // few ids make repeated tokens and runs of bytes likely.
        let ids = prop::collection::vec(
            prop_oneof![4 => 0..size + 2, 2 => size.saturating_sub(20)..size, 1 => 0..6_u32],
            0..14,
        );
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(10_000)
        });
        runner
            .run(&(ids, any::<bool>()), |(ids, skip_special)| {
                let expected = reference(&tokenizer, name, &ids, skip_special);
                prop_assert_eq!(&tokenizer.decode(&ids, skip_special), &expected, "{}", name);
                prop_assert_eq!(
                    &stream(&tokenizer, &ids, skip_special),
                    &expected,
                    "{}",
                    name
                );
                Ok(())
            })
            .unwrap();
    }
}

fn push_bytes(tokenizer: &Arc<Tokenizer>, pieces: &[&[u8]]) -> Vec<String> {
    let mut detokenizer = Detokenizer::new(tokenizer, false);
    let mut texts: Vec<String> = pieces
        .iter()
        .map(|bytes| {
            let token = byte_level_token(bytes);
            detokenizer.push(tokenizer.token_to_id(&token).expect("in the vocabulary"))
        })
        .collect();
    texts.push(detokenizer.finish());
    texts
}

#[test]
fn a_character_comes_out_when_its_last_byte_arrives() {
    let tokenizer = Arc::new(byte_level());
    assert_eq!(
        push_bytes(&tokenizer, &[b"\xF0\x9F", b"\x98\x8A", b" ", b"x"]),
        ["", "😊", " ", "x", ""]
    );
}

#[test]
fn an_invalid_byte_becomes_one_replacement_character() {
    let tokenizer = Arc::new(byte_level());
    assert_eq!(
        push_bytes(&tokenizer, &[b"\xFF", b" ", b"x"]),
        ["\u{FFFD}", " ", "x", ""]
    );
}

#[test]
fn a_text_may_begin_with_continuation_bytes() {
    let tokenizer = Arc::new(byte_level());
    assert_eq!(
        push_bytes(&tokenizer, &[b"\x98\x8A", b"\xBD", b"x"]).concat(),
        "\u{FFFD}\u{FFFD}\u{FFFD}x"
    );
}

#[test]
fn a_text_cut_inside_a_character_is_valid() {
    let tokenizer = Arc::new(byte_level());
    assert_eq!(
        push_bytes(&tokenizer, &[b"x", b"\xF0\x9F"]),
        ["x", "", "\u{FFFD}"]
    );
}

#[test]
fn an_added_token_of_the_byte_alphabet_keeps_its_text() {
    let tokens: Vec<String> = (0..=255_u8).map(|byte| byte_level_token(&[byte])).collect();
    let tokenizer = build(
        &bpe(&tokens),
        &serde_json::from_str(BYTE_LEVEL).unwrap(),
        &[("č", false), ("naïve", false)],
    );
    for text in ["č", "naïve", "a č naïve"] {
        let ids = tokenizer.encode(text, false).unwrap();
        assert_eq!(tokenizer.decode(&ids, false), text);
    }
}

#[test]
fn a_sentence_piece_text_loses_its_leading_space_once() {
    let tokenizers = all();
    let (_, tokenizer) = tokenizers
        .iter()
        .find(|(name, _)| *name == "llama 2")
        .unwrap();
    let id = |token: &str| tokenizer.token_to_id(token).unwrap();
    let mut detokenizer = Detokenizer::new(tokenizer, true);
    assert_eq!(detokenizer.push(id("<s>")), "");
    assert_eq!(detokenizer.push(id("▁Hello")), "Hello");
    assert_eq!(detokenizer.push(id("▁world")), " world");
    for byte in ["<0xE4>", "<0xBD>", "<0xA0>"] {
        assert_eq!(detokenizer.push(id(byte)), "");
    }
    assert_eq!(detokenizer.push(id("▁.")), "你 .");
    assert_eq!(detokenizer.finish(), "");
}

#[test]
fn a_detokenizer_starts_anew_after_its_end() {
    let tokenizers = all();
    let (_, tokenizer) = tokenizers
        .iter()
        .find(|(name, _)| *name == "metaspace")
        .unwrap();
    let id = tokenizer.token_to_id("▁Hello").unwrap();
    let mut detokenizer = Detokenizer::new(tokenizer, false);
    for _ in 0..2 {
        assert_eq!(detokenizer.push(id), "Hello");
        assert_eq!(detokenizer.push(id), " Hello");
        assert_eq!(detokenizer.finish(), "");
    }
}

#[test]
fn the_cost_of_a_token_does_not_grow() {
    let tokenizer = Arc::new(byte_level());
    let id = tokenizer.token_to_id(&byte_level_token(b" the")).unwrap();
    let mut detokenizer = Detokenizer::new(&tokenizer, false);
    let mut time = |count: u32| {
        let start = std::time::Instant::now();
        for _ in 0..count {
            detokenizer.push(id);
        }
        start.elapsed()
    };
    time(1_000);
    let early = (0..5).map(|_| time(2_000)).min().unwrap();
    time(200_000);
    let late = (0..5).map(|_| time(2_000)).min().unwrap();
    assert!(late < early * 5, "early {early:?}, late {late:?}");
}

#[test]
fn a_text_with_bos_gets_no_second_one() {
    let config = TokenizerConfig {
        named: vec![("bos_token".to_owned(), AddedToken::from("<s>", true))],
        add_bos: Some(true),
        ..TokenizerConfig::default()
    };
    let tokenizer = build_with(
        &bpe(&byte_fallback_tokens()),
        &json!({"type": "Fuse"}),
        &[("<s>", true)],
        &config,
    );
    let bos = tokenizer.bos_id().unwrap();
    let w = tokenizer.token_to_id("w").unwrap();
    assert_eq!(tokenizer.encode("w", true).unwrap(), [bos, w]);
    assert_eq!(tokenizer.encode("<s>w", true).unwrap(), [bos, w]);
    assert_eq!(tokenizer.encode("<s><s>w", true).unwrap(), [bos, bos, w]);
    assert_eq!(tokenizer.encode("w", false).unwrap(), [w]);
}

#[test]
fn tokens_of_the_config_are_added() {
    let config = TokenizerConfig {
        named: vec![("eos_token".to_owned(), AddedToken::from("<|im_end|>", true))],
        added: vec![(258, AddedToken::from("<|call|>", false))],
        ..TokenizerConfig::default()
    };
    let tokens: Vec<String> = (0..=255_u8).map(|byte| byte_level_token(&[byte])).collect();
    let tokenizer = build_with(
        &bpe(&tokens),
        &serde_json::from_str(BYTE_LEVEL).unwrap(),
        &[("<|a|>", true), ("<|b|>", true)],
        &config,
    );
    assert_eq!(tokenizer.token_to_id("<|call|>"), Some(258));
    assert_eq!(tokenizer.eos_id(), Some(259));
    assert_eq!(tokenizer.special_ids(), [256, 257, 259]);
    assert_eq!(tokenizer.vocab_size(), 260);
    assert_eq!(tokenizer.id_to_token(258).as_deref(), Some("<|call|>"));
    assert_eq!(tokenizer.decode(&[258, 259], true), "<|call|>");
}

#[test]
fn malformed_files_are_errors_that_name_them() {
    let directory = tempfile::tempdir().unwrap();
    let error = Tokenizer::load(directory.path()).err().unwrap();
    assert_eq!(error.kind(), Kind::ModelFormat);
    assert!(
        error.message().ends_with("missing: tokenizer.json"),
        "{error}"
    );
    for text in [
        "",
        "[]",
        "{\"decoder\": {\"type\": \"ByteLe",
        "{\"decoder\": 5}",
        "{\"version\": \"1.0\"}",
    ] {
        std::fs::write(directory.path().join("tokenizer.json"), text).unwrap();
        let error = Tokenizer::load(directory.path()).err().unwrap();
        assert_eq!(error.kind(), Kind::ModelFormat, "{text}");
        assert!(error.message().contains("tokenizer.json"), "{error}");
    }
}
