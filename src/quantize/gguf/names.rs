//! What llama.cpp calls the modules of a llama.

const TOP: [(&str, &str); 3] = [
    ("model.embed_tokens", "token_embd"),
    ("model.norm", "output_norm"),
    ("lm_head", "output"),
];

const IN_LAYER: [(&str, &str); 9] = [
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// The output head, by the file's name: where there is none, the embedding is it.
pub(super) const HEAD: &str = "output.weight";

/// Factors of the rotary frequencies.
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";

/// The name in the file of the weight of the module at `path`.
pub(super) fn in_file(path: &str) -> String {
    let find = |table: &[(&str, &'static str)], name| {
        let row = table.iter().find(|row| row.0 == name);
        row.map(|row| row.1)
    };
    let in_layer = || {
        let (layer, module) = path.strip_prefix("model.layers.")?.split_once('.')?;
        Some(format!("blk.{layer}.{}.weight", find(&IN_LAYER, module)?))
    };
    match find(&TOP, path) {
        Some(name) => format!("{name}.weight"),
        // A module that llama.cpp has no name for is missing under its own.
        None => in_layer().unwrap_or_else(|| path.to_owned()),
    }
}

/// Whether the rows of a module lie in pairs in the file.
pub(super) fn is_paired(path: &str) -> bool {
    path.ends_with(".self_attn.q_proj") || path.ends_with(".self_attn.k_proj")
}

/// Whether a tensor is computed from the configuration, which speaks for it.
pub(super) fn is_derived(name: &str) -> bool {
    name == ROPE_FACTORS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_have_the_names_of_llama_cpp() {
        for (path, name) in [
            ("model.embed_tokens", "token_embd.weight"),
            ("lm_head", "output.weight"),
            ("model.norm", "output_norm.weight"),
            ("model.layers.12.mlp.down_proj", "blk.12.ffn_down.weight"),
            ("model.layers.0.input_layernorm", "blk.0.attn_norm.weight"),
            ("model.layers.0.other", "model.layers.0.other"),
        ] {
            assert_eq!(in_file(path), name);
        }
        assert!(is_paired("model.layers.3.self_attn.k_proj"));
        assert!(!is_paired("model.layers.3.self_attn.v_proj"));
    }
}
