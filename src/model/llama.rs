//! The Llama architecture (model types llama and mistral).

use mlx_rs::{Array, fast, fast::ScaledDotProductAttentionMask};

use super::{
    config::ModelConfig,
    layer_cache::{FullKv, LayerCache},
    modules::{Embedding, Linear, RmsNorm, swiglu},
    parameters::{ModuleSpec, Modules},
    rope::Rope,
};
use crate::{engine::mlx::MlxResult, error::Result};

/// A decoder of blocks of attention and gated MLP, each normalised before.
pub(crate) struct Llama {
    embedding: Embedding,
    blocks: Vec<Block>,
    norm: RmsNorm,
    /// None where the embedding serves as head.
    head: Option<Linear>,
}

struct Block {
    attention_norm: RmsNorm,
    attention: Attention,
    mlp_norm: RmsNorm,
    mlp: Mlp,
}

struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    rope: Rope,
    head_count: i32,
    kv_head_count: i32,
    head_dim: i32,
}

struct Mlp {
    gate: Linear,
    up: Linear,
    down: Linear,
}

/// The modules that a folder must hold, in the order in which the model uses them.
pub(crate) fn modules(config: &ModelConfig) -> Vec<ModuleSpec> {
    let hidden = config.hidden_size;
    let queries = config.head_count * config.head_dim;
    let keys = config.kv_head_count * config.head_dim;
    let (attention_bias, mlp_bias) = (config.attention_bias, config.mlp_bias);
    let mut modules = vec![ModuleSpec::embedding(
        "model.embed_tokens",
        config.vocab_size,
        hidden,
    )];
    for index in 0..config.layer_count {
        let layer = format!("model.layers.{index}");
        let linear = |name: &str, out, input, bias| {
            ModuleSpec::linear(format!("{layer}.{name}"), out, input, bias)
        };
        modules.extend([
            ModuleSpec::norm(format!("{layer}.input_layernorm"), hidden),
            linear("self_attn.q_proj", queries, hidden, attention_bias),
            linear("self_attn.k_proj", keys, hidden, attention_bias),
            linear("self_attn.v_proj", keys, hidden, attention_bias),
            linear("self_attn.o_proj", hidden, queries, attention_bias),
            ModuleSpec::norm(format!("{layer}.post_attention_layernorm"), hidden),
            linear("mlp.gate_proj", config.intermediate_size, hidden, mlp_bias),
            linear("mlp.up_proj", config.intermediate_size, hidden, mlp_bias),
            linear("mlp.down_proj", hidden, config.intermediate_size, mlp_bias),
        ]);
    }
    modules.push(ModuleSpec::norm("model.norm", hidden));
    if !config.tie_word_embeddings {
        modules.push(ModuleSpec::linear(
            "lm_head",
            config.vocab_size,
            hidden,
            false,
        ));
    }
    modules
}

impl Llama {
    /// Takes its parts out of the loaded modules, which are those that [`modules`] named.
    pub(crate) fn new(config: &ModelConfig, modules: &mut Modules) -> Result<Self> {
        let norm = |modules: &mut Modules, path: &str| -> Result<RmsNorm> {
            Ok(RmsNorm {
                weight: modules.norm(path)?,
                epsilon: config.rms_norm_eps,
            })
        };
        let mut blocks = Vec::new();
        for index in 0..config.layer_count {
            let layer = format!("model.layers.{index}");
            let part = |name: &str| format!("{layer}.{name}");
            blocks.push(Block {
                attention_norm: norm(modules, &part("input_layernorm"))?,
                attention: Attention {
                    query: modules.linear(&part("self_attn.q_proj"))?,
                    key: modules.linear(&part("self_attn.k_proj"))?,
                    value: modules.linear(&part("self_attn.v_proj"))?,
                    output: modules.linear(&part("self_attn.o_proj"))?,
                    rope: Rope::new(config.head_dim as i32, &config.rope)?,
                    head_count: config.head_count as i32,
                    kv_head_count: config.kv_head_count as i32,
                    head_dim: config.head_dim as i32,
                },
                mlp_norm: norm(modules, &part("post_attention_layernorm"))?,
                mlp: Mlp {
                    gate: modules.linear(&part("mlp.gate_proj"))?,
                    up: modules.linear(&part("mlp.up_proj"))?,
                    down: modules.linear(&part("mlp.down_proj"))?,
                },
            });
        }
        Ok(Self {
            embedding: modules.embedding("model.embed_tokens")?,
            blocks,
            norm: norm(modules, "model.norm")?,
            head: if config.tie_word_embeddings {
                None
            } else {
                Some(modules.linear("lm_head")?)
            },
        })
    }

    /// An empty state for each layer.
    pub(crate) fn new_cache(&self) -> Vec<LayerCache> {
        self.blocks
            .iter()
            .map(|_| LayerCache::Full(FullKv::default()))
            .collect()
    }

    /// Ids \[1, L\] to hidden states \[1, L, hidden\], appending to the caches.
    pub(crate) fn forward(&self, ids: &Array, caches: &mut [LayerCache]) -> MlxResult {
        let mut hidden = self.embedding.look_up(ids)?;
        for (block, cache) in self.blocks.iter().zip(caches) {
            let attended = block
                .attention
                .apply(&block.attention_norm.apply(&hidden)?, cache)?;
            let middle = hidden.add(attended)?;
            let transformed = block.mlp.apply(&block.mlp_norm.apply(&middle)?)?;
            hidden = middle.add(transformed)?;
        }
        self.norm.apply(&hidden)
    }

    /// Hidden states \[1, L, hidden\] to logits \[1, L, vocabulary\].
    pub(crate) fn logits(&self, hidden: &Array) -> MlxResult {
        match &self.head {
            Some(head) => head.apply(hidden),
            None => self.embedding.as_head(hidden),
        }
    }
}

impl Attention {
    fn apply(&self, x: &Array, cache: &mut LayerCache) -> MlxResult {
        let LayerCache::Full(cache) = cache;
        let length = x.dim(1);
        // For a single token the heads lie one behind the other already.
        let split = |x: Array, heads: i32| -> MlxResult {
            if length == 1 {
                return x.reshape(&[1, heads, 1, self.head_dim]);
            }
            x.reshape(&[1, length, heads, self.head_dim])?
                .transpose_axes(&[0, 2, 1, 3])
        };
        let offset = cache.offset();
        let queries = split(self.query.apply(x)?, self.head_count)?;
        let keys = split(self.key.apply(x)?, self.kv_head_count)?;
        let values = split(self.value.apply(x)?, self.kv_head_count)?;
        let queries = self.rope.apply(&queries, offset)?;
        let keys = self.rope.apply(&keys, offset)?;
        let (keys, values) = cache.append(&keys, &values)?;
        let mask = (length > 1).then_some(ScaledDotProductAttentionMask::Causal);
        let scale = (f64::from(self.head_dim)).powf(-0.5) as f32;
        let attended =
            fast::scaled_dot_product_attention(queries, keys, values, scale, mask, None)?;
        let by_token = if length == 1 {
            attended
        } else {
            attended.transpose_axes(&[0, 2, 1, 3])?
        };
        let joined = by_token.reshape(&[1, length, self.head_count * self.head_dim])?;
        self.output.apply(&joined)
    }
}

impl Mlp {
    fn apply(&self, x: &Array) -> MlxResult {
        let (gate, up) = (self.gate.apply(x)?, self.up.apply(x)?);
        self.down.apply(&swiglu(&gate, &up)?)
    }
}
