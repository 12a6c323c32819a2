//! What a conversion costs, as the library tells it and as mlx-lm computes it.

use std::{fs, path::Path};

use mlxb::{
    Kind, Tokenizer,
    quantize::{Matrices, QuantizationMode, QuantizeOptions, report},
};

use crate::{
    folder::{json, scratch},
    reference::{all_alike, packing, python},
    support::test_model,
};

const TEXT: &str = "The river rose in the night, and by morning the lower fields were a lake. \
    Nobody spoke of it at breakfast; they had seen it before, and 1953 had been far worse.";

fn options(bits: usize, group_size: usize) -> QuantizeOptions<'static> {
    QuantizeOptions::new(all_alike(packing(
        QuantizationMode::Affine,
        bits,
        group_size,
    )))
}

#[test]
fn divergences_are_those_that_mlx_lm_computes() {
    let scratch = scratch("report");
    let model = test_model("tiny");
    // More than one window, of bytes.
    let text = TEXT.repeat(2);
    let ids = Tokenizer::load(&model)
        .unwrap()
        .encode(&text, true)
        .unwrap();
    assert!(ids.len() > 256 && !ids.len().is_multiple_of(128));
    let file = scratch.join("ids.json");
    fs::write(&file, serde_json::to_vec(&ids).unwrap()).unwrap();
    let out = scratch.join("expected.json");
    let number = |text: &'static str| Path::new(text);
    python(
        "tests/quantize/divergence.py",
        &[&model, &file, number("4"), number("32"), &out],
    );
    let expected = json(&out);

    let made = report(&model, &text, options(4, 32)).unwrap();
    assert_eq!(made.token_count, ids.len());
    let close = |ours: f64, theirs: &serde_json::Value| {
        let theirs = theirs.as_f64().unwrap();
        assert!(
            theirs > 1e-5 && (ours - theirs).abs() < 1e-6 + 1e-3 * theirs,
            "{ours} {theirs}"
        );
    };
    close(made.divergence, &expected["whole"]);
    assert_eq!(made.layers.len(), 4);
    for layer in &made.layers {
        close(layer.divergence, &expected["layers"][&layer.path]);
        assert!(layer.divergence < made.divergence);
    }
    let paths: Vec<_> = made
        .layers
        .iter()
        .map(|layer| layer.path.as_str())
        .collect();
    assert_eq!(
        paths,
        [
            "model.embed_tokens",
            "model.layers.0",
            "model.layers.1",
            "lm_head"
        ]
    );
    // 4 bits, and two floats of 32 for each 32 weights; norms are plain.
    assert_eq!(made.layers[0].bits_per_weight, 6.0);
    assert!(made.layers[1].bits_per_weight > 6.0 && made.layers[1].bits_per_weight < 6.5);
    let json = made.to_json();
    assert_eq!(json["layers"][3]["parameter_count"], 259 * 64);
    assert_eq!(json["divergence"], made.divergence);
}

#[test]
fn fewer_bits_cost_more() {
    let model = test_model("tiny");
    let divergence = |bits| report(&model, TEXT, options(bits, 32)).unwrap().divergence;
    let made: Vec<_> = [8, 6, 4, 3, 2].map(divergence).into();
    assert!(
        made.is_sorted() && made[0] < 1e-3 && made[4] > 0.01,
        "{made:?}"
    );
}

#[test]
fn what_cannot_be_reported_on_is_refused() {
    let model = test_model("tiny");
    let keep = QuantizeOptions::new(Matrices::Keep);
    let error = report(&model, TEXT, keep).unwrap_err();
    assert_eq!(error.kind(), Kind::InvalidArgument);
    let error = report(&model, "", options(4, 32)).unwrap_err();
    assert_eq!(error.message(), "the text has no tokens");
}
