//! Models: their configuration, weights, architectures and the KV state of a sequence.

mod config;
mod dtype;
mod eos;
mod generation_defaults;
mod identity;
mod kv;
mod layer_cache;
mod llama;
mod load;
mod module_path;
mod modules;
mod parameters;
mod quantization;
mod rope;
mod running;

use std::{path::Path, sync::Arc};

use mlx_rs::Array;

pub(crate) use self::{
    config::ModelConfig,
    dtype::{from_mlx_dtype, to_mlx_dtype},
    identity::{Fields, Identity, Remember, Stamp},
    kv::{Lease, Source, State},
    layer_cache::LayerCache,
    load::{Weights, modules_of},
    parameters::{Modules, Parameter},
    running::{Loan, Running},
};
use self::{generation_defaults::GenerationDefaults, llama::Llama};
pub use self::{
    kv::Kv,
    load::LoadOptions,
    quantization::{QuantizationMode, QuantizationParameters},
};
pub use crate::engine::mlx::DeviceKind;
use crate::{
    chat::ChatTemplate,
    engine::{Mlx, Owned, mlx::MlxResult},
    error::{Error, Kind, Result},
    footprint::Shape,
    generate::{DEFAULT_PENALTY_CONTEXT, Penalty, Sampling},
    supported::Architecture,
    tokenizer::Tokenizer,
};

/// A loaded model. Clones share it; it is freed with the last of them and of the states made
/// from it. All its functions may be called from several threads at once.
#[derive(Clone)]
pub struct Model(pub(crate) Arc<LoadedModel>);

/// What a model is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelInfo {
    /// The configuration's name of the architecture, such as "llama".
    pub model_type: String,
    /// Tokens of prompt and answer together that fit.
    pub context_length: usize,
    /// Rows of the embedding: every token id is below.
    pub vocab_size: usize,
    /// Blocks.
    pub layer_count: usize,
    /// Width of the hidden states.
    pub hidden_size: usize,
    /// Bytes of all weights.
    pub weight_bytes: u64,
    /// Bytes of KV state that one token takes, over all layers.
    pub kv_bytes_per_token: u64,
    /// The ids that end an answer, ascending.
    pub eos_tokens: Vec<u32>,
    /// Where it computes.
    pub device: DeviceKind,
}

/// The parts of a model. What MLX holds is opened on the engine thread only.
pub(crate) struct LoadedModel {
    network: Owned<Network>,
    pub(crate) identity: Identity,
    pub(crate) tokenizer: Arc<Tokenizer>,
    /// A model that has none is told so to those who ask for it.
    chat_template: Result<ChatTemplate>,
    pub(crate) info: ModelInfo,
    pub(crate) shape: Shape,
    defaults: GenerationDefaults,
}

/// One of the architectures.
pub(crate) enum Network {
    Llama(Llama),
}

impl Network {
    /// Takes its parts out of the loaded modules.
    pub(crate) fn new(config: &ModelConfig, modules: &mut Modules) -> Result<Self> {
        match config.architecture {
            Architecture::Llama => Llama::new(config, modules).map(Self::Llama),
        }
    }

    /// An empty state for each layer.
    pub(crate) fn new_cache(&self) -> Vec<LayerCache> {
        match self {
            Self::Llama(llama) => llama.new_cache(),
        }
    }

    /// Ids \[1, L\] to hidden states \[1, L, hidden\], appending to the caches.
    pub(crate) fn forward(&self, ids: &Array, caches: &mut [LayerCache]) -> MlxResult {
        match self {
            Self::Llama(llama) => llama.forward(ids, caches),
        }
    }

    /// Hidden states \[1, L, hidden\] to logits \[1, L, vocabulary\].
    pub(crate) fn logits(&self, hidden: &Array) -> MlxResult {
        match self {
            Self::Llama(llama) => llama.logits(hidden),
        }
    }
}

impl LoadedModel {
    pub(crate) fn network(&self, mlx: &Mlx) -> &Network {
        self.network.get(mlx)
    }

    pub(crate) fn device(&self) -> DeviceKind {
        self.info.device
    }

    pub(crate) fn is_eos(&self, id: u32) -> bool {
        self.info.eos_tokens.binary_search(&id).is_ok()
    }

    /// Refuses ids that are no rows of the embedding: MLX would read past its end.
    pub(crate) fn check_tokens(&self, tokens: &[u32]) -> Result<()> {
        match tokens
            .iter()
            .find(|&&id| id as usize >= self.info.vocab_size)
        {
            None => Ok(()),
            Some(id) => Err(Error::new(
                Kind::InvalidArgument,
                format!(
                    "a token id is not below the vocabulary's size {}: {id}",
                    self.info.vocab_size
                ),
            )),
        }
    }
}

impl Model {
    /// Loads the model in the folder of a Hugging Face snapshot or of an mlx-community one.
    ///
    /// # Errors
    /// [`Kind::NotFound`] without such a folder, [`Kind::ModelFormat`] or [`Kind::Corrupt`] for
    /// one that is incomplete or contradicts itself, [`Kind::Unsupported`] for an architecture
    /// or a setting that the library does not have, [`Kind::Cancelled`].
    pub fn load(dir: impl AsRef<Path>, options: LoadOptions<'_>) -> Result<Self> {
        load::load(dir.as_ref(), options).map(|model| Self(Arc::new(model)))
    }

    /// What it is.
    pub fn info(&self) -> &ModelInfo {
        &self.0.info
    }

    /// How its makers would sample from it: what `generation_config.json` says, and the
    /// library's own defaults for the rest.
    pub fn default_sampling(&self) -> Sampling {
        let defaults = &self.0.defaults;
        let mut sampling = Sampling::default();
        // Without do_sample the rest of the file means nothing, as for transformers.
        if defaults.do_sample == Some(true) {
            let narrow = |value: f64| value as f32;
            sampling.temperature = defaults.temperature.map_or(1.0, narrow);
            sampling.top_p = defaults.top_p.map_or(sampling.top_p, narrow);
            sampling.min_p = defaults.min_p.map_or(sampling.min_p, narrow);
            sampling.top_k = defaults.top_k.unwrap_or(sampling.top_k);
        }
        sampling.penalties.repetition = defaults.repetition_penalty.map(|value| Penalty {
            value: value as f32,
            context_size: DEFAULT_PENALTY_CONTEXT,
        });
        sampling
    }

    /// Its tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.0.tokenizer
    }

    /// Its chat template.
    ///
    /// # Errors
    /// [`Kind::Template`] where the folder has none, or one that does not compile.
    pub fn chat_template(&self) -> Result<&ChatTemplate> {
        let template = self.0.chat_template.as_ref();
        template.map_err(|error| Error::new(error.kind(), error.message()))
    }
}
