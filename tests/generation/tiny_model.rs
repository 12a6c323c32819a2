//! A llama of random weights with a vocabulary of bytes: quick, and says nothing. Its answers at
//! temperature 1 go everywhere.

use std::{fs, path::Path};

use mlxb::{LoadOptions, Model};
use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Ids of the control tokens; those of the bytes follow.
pub(crate) const END: u32 = 0;
pub(crate) const VOCABULARY: usize = 258;
pub(crate) const CONTEXT: usize = 16_384;

const HIDDEN: usize = 32;
const INNER: usize = 64;
const HEADS: usize = 2;
const HEAD: usize = 16;
const LAYERS: usize = 2;

/// The id of a byte.
pub(crate) fn byte(byte: u8) -> u32 {
    u32::from(byte) + 2
}

/// The folder of one that `seed` decides, with `settings` as its generation_config.json.
pub(crate) fn folder(seed: u64, settings: &Value) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    write(folder.path(), seed, settings);
    folder
}

/// Loads it.
pub(crate) fn load_with(seed: u64, settings: &Value) -> Model {
    let folder = folder(seed, settings);
    Model::load(folder.path(), LoadOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// Loads one that `seed` decides.
pub(crate) fn load(seed: u64) -> Model {
    load_with(seed, &json!({}))
}

fn write(folder: &Path, seed: u64, settings: &Value) {
    let documents = [
        ("config.json", config()),
        ("generation_config.json", settings.clone()),
        ("tokenizer.json", tokenizer()),
        ("tokenizer_config.json", json!({"eos_token": "<end>"})),
    ];
    for (name, document) in documents {
        fs::write(folder.join(name), document.to_string()).expect("the folder is writable");
    }
    let tensors = tensors(seed);
    let views = tensors.iter().map(|(name, shape, bytes)| {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
        (name, view.expect("the bytes are as many as the shape says"))
    });
    let file = safetensors::serialize(views, None).expect("plain tensors");
    fs::write(folder.join("model.safetensors"), file).expect("the folder is writable");
}

fn config() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": INNER,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
        "head_dim": HEAD, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "tie_word_embeddings": false, "eos_token_id": END,
        "torch_dtype": "float32",
    })
}

/// Byte-level BPE without merges.
fn tokenizer() -> Value {
    let printable = |byte: &u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut others = 256..;
    let mut vocabulary = serde_json::Map::new();
    vocabulary.insert("<end>".into(), END.into());
    vocabulary.insert("<begin>".into(), 1.into());
    for value in 0..256_u32 {
        let code = if printable(&value) {
            value
        } else {
            others.next().expect("it does not end")
        };
        let name = char::from_u32(code).expect("no surrogate").to_string();
        vocabulary.insert(name, (value + 2).into());
    }
    let added = |id: u32, text: &str| {
        json!({"id": id, "content": text, "special": true, "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false})
    };
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false,
        "trim_offsets": true, "use_regex": false});
    json!({
        "version": "1.0", "added_tokens": [added(END, "<end>"), added(1, "<begin>")],
        "pre_tokenizer": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    })
}

fn tensors(seed: u64) -> Vec<(String, Vec<usize>, Vec<u8>)> {
    let mut random = Random(seed);
    let mut made = Vec::new();
    let mut add = |name: String, shape: Vec<usize>, low: f32, high: f32| {
        let numbers = (0..shape.iter().product()).map(|_| low + (high - low) * random.next());
        let bytes = numbers.flat_map(f32::to_le_bytes).collect();
        made.push((name, shape, bytes));
    };
    let wide = HEADS * HEAD;
    for layer in 0..LAYERS {
        let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
        for (part, rows, columns) in [
            ("self_attn.q_proj", wide, HIDDEN),
            ("self_attn.k_proj", wide, HIDDEN),
            ("self_attn.v_proj", wide, HIDDEN),
            ("self_attn.o_proj", HIDDEN, wide),
            ("mlp.gate_proj", INNER, HIDDEN),
            ("mlp.up_proj", INNER, HIDDEN),
            ("mlp.down_proj", HIDDEN, INNER),
        ] {
            add(name(part), vec![rows, columns], -0.3, 0.3);
        }
        add(name("input_layernorm"), vec![HIDDEN], 0.5, 1.5);
        add(name("post_attention_layernorm"), vec![HIDDEN], 0.5, 1.5);
    }
    add("model.norm.weight".into(), vec![HIDDEN], 0.5, 1.5);
    add(
        "model.embed_tokens.weight".into(),
        vec![VOCABULARY, HIDDEN],
        -1.0,
        1.0,
    );
    add("lm_head.weight".into(), vec![VOCABULARY, HIDDEN], -0.5, 0.5);
    made
}

/// SplitMix64 (Steele et al. 2014), as numbers from 0 to 1.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1_u64 << 24) as f32
    }

    /// Below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
