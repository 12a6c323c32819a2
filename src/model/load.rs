//! From a folder to a model. The caller's thread reads; the engine adopts one tensor at a time,
//! so that generations that run meanwhile go on between two of them.

use std::{collections::HashMap, path::Path, sync::Arc, thread};

use mlx_rs::{Array, Dtype as MlxDtype};

use super::{
    DeviceKind, LoadedModel, ModelInfo, Network,
    config::ModelConfig,
    dtype::to_mlx_dtype,
    generation_defaults::GenerationDefaults,
    identity::Identity,
    llama,
    module_path::in_text_model,
    parameters::{ModuleSpec, Modules, Parameter, Plan},
};
use crate::{
    cancel::{Cancel, Flow, cancelled},
    chat::ChatTemplate,
    engine::{Engine, Mlx, Owned, Pages, engine},
    error::{Error, Kind, Result},
    footprint::{Need, Shape},
    memory::{self, Admission},
    safetensors::Shard,
    snapshot::{Role, Snapshot, WeightFile},
    supported::Architecture,
    tokenizer::Tokenizer,
};

/// How to load a model.
#[derive(Default)]
pub struct LoadOptions<'a> {
    /// Where to compute.
    pub device: DeviceKind,
    /// Tokens of context to allow; the model's own number where None.
    pub context_length: Option<usize>,
    /// Told before each tensor and at the end: bytes read, and bytes in all. Called on the
    /// loading thread; [`Flow::Stop`] cancels.
    pub on_progress: Option<&'a mut dyn FnMut(u64, u64) -> Flow>,
    /// Looked at before each tensor.
    pub cancel: Option<Cancel>,
}

/// What is allowed where the configuration names no limit.
const MOST_CONTEXT: usize = 1 << 30;

/// Bytes from which on a tensor has a mapping of its own.
const ADOPT_FROM_BYTES: usize = 64 * 1024;

pub(super) fn load(dir: &Path, mut options: LoadOptions<'_>) -> Result<LoadedModel> {
    let cancel = options.cancel.take();
    Cancel::check(cancel.as_ref())?;
    let Weights {
        config,
        shards,
        plan,
        snapshot,
        ..
    } = Weights::find(dir)?;
    let identity = Identity::of(&snapshot, &shards)?;
    let defaults = GenerationDefaults::read(&snapshot)?;
    let engine = engine()?;
    let admission = admit(engine, &plan)?;
    // The tokenizer takes about as long to parse as the weights of a small model to read.
    thread::scope(|scope| {
        let tokenizer = scope.spawn(|| Tokenizer::load(dir));
        let tensors = read_all(
            engine,
            &shards,
            &plan,
            &admission,
            cancel.as_ref(),
            &mut options,
        )?;
        let tokenizer = tokenizer
            .join()
            .unwrap_or_else(|_| Err(Error::new(Kind::Panic, "loading the tokenizer panicked")))?;
        let chat_template = ChatTemplate::load(dir, &tokenizer);
        let info = info(&config, &plan, &tokenizer, &options);
        let shape = shape(&config, &plan);
        let device = options.device;
        let network = engine.run(move |mlx| -> Result<_> {
            let tensors = tensors
                .into_iter()
                .map(|(name, tensor)| (name, tensor.into_inner(mlx)))
                .collect();
            let mut modules = Modules::new(tensors, plan.packings);
            let network = mlx.on(device, || Network::new(&config, &mut modules))?;
            Ok(Owned::new(network, mlx))
        })??;
        Ok(LoadedModel {
            network,
            identity,
            tokenizer: Arc::new(tokenizer),
            chat_template,
            info,
            shape,
            defaults,
        })
    })
}

/// A folder's configuration, and where each of its weights is. No data has been read.
pub(crate) struct Weights {
    pub(crate) snapshot: Snapshot,
    pub(crate) config: ModelConfig,
    pub(crate) shards: Vec<Shard>,
    /// The modules that the architecture needs, in the order of use.
    pub(crate) modules: Vec<ModuleSpec>,
    pub(crate) plan: Plan,
}

impl Weights {
    /// Looks for the weights of the model in the folder `dir`.
    ///
    /// # Errors
    /// As those of loading.
    pub(crate) fn find(dir: &Path) -> Result<Self> {
        let snapshot = Snapshot::inspect(dir)?;
        let shards = snapshot.open_weights()?;
        let is_main = |file: &&WeightFile| file.role == Role::Main;
        let main_count = snapshot.weights().iter().take_while(is_main).count();
        let mut config = ModelConfig::read(&snapshot)?;
        config.settle_head(holds_a_head(&shards));
        let modules = modules_of(&config);
        let plan = Plan::new(
            &modules,
            &shards,
            main_count,
            &config.quantization,
            config.tie_word_embeddings,
        )?;
        Ok(Self {
            snapshot,
            config,
            shards,
            modules,
            plan,
        })
    }
}

/// The modules that the architecture needs, in the order of use.
pub(crate) fn modules_of(config: &ModelConfig) -> Vec<ModuleSpec> {
    match config.architecture {
        Architecture::Llama => llama::modules(config),
    }
}

fn admit(engine: &Engine, plan: &Plan) -> Result<Admission> {
    let need = Need {
        lasting_bytes: plan.bytes(),
        step_bytes: 0,
    };
    engine.run(move |mlx| memory::admit("the model", need, mlx))?
}

fn holds_a_head(shards: &[Shard]) -> bool {
    let mut tensors = shards.iter().flat_map(Shard::tensors);
    tensors.any(|tensor| in_text_model(&tensor.name).starts_with("lm_head."))
}

fn shape(config: &ModelConfig, plan: &Plan) -> Shape {
    Shape {
        layer_count: config.layer_count as u64,
        head_count: config.head_count as u64,
        kv_head_count: config.kv_head_count as u64,
        head_dim: config.head_dim as u64,
        hidden_size: config.hidden_size as u64,
        intermediate_size: config.intermediate_size as u64,
        vocab_size: config.vocab_size as u64,
        element_bytes: plan.element_bytes(),
    }
}

fn info(
    config: &ModelConfig,
    plan: &Plan,
    tokenizer: &Tokenizer,
    options: &LoadOptions<'_>,
) -> ModelInfo {
    let own = config.max_position_embeddings.unwrap_or(MOST_CONTEXT);
    let mut eos_tokens = config.eos.ids().clone();
    eos_tokens.extend(tokenizer.eos_id());
    let named = config.eos.token();
    eos_tokens.extend(named.and_then(|token| tokenizer.token_to_id(token)));
    ModelInfo {
        model_type: config.model_type.clone(),
        context_length: options.context_length.map_or(own, |length| length.min(own)),
        vocab_size: config.vocab_size,
        layer_count: config.layer_count,
        hidden_size: config.hidden_size,
        weight_bytes: plan.bytes(),
        kv_bytes_per_token: shape(config, plan).kv_bytes_per_token(),
        // Files name ids beyond the vocabulary, too; nothing samples these.
        eos_tokens: eos_tokens
            .into_iter()
            .filter(|&id| (id as usize) < config.vocab_size)
            .collect(),
        device: options.device,
    }
}

fn read_all(
    engine: &Engine,
    shards: &[Shard],
    plan: &Plan,
    admission: &Admission,
    cancel: Option<&Cancel>,
    options: &mut LoadOptions<'_>,
) -> Result<HashMap<String, Owned<Array>>> {
    let total = plan.bytes();
    let mut done = 0;
    let mut tensors = HashMap::with_capacity(plan.parameters.len());
    let mut tell = |done| {
        let on_progress = options.on_progress.as_mut();
        match on_progress.map_or(Flow::Continue, |on_progress| on_progress(done, total)) {
            Flow::Stop => Err(cancelled()),
            Flow::Continue => Cancel::check(cancel),
        }
    };
    // All of the memory first: side by side, the system can give it out in larger pages.
    let buffers = plan.parameters.iter().map(Buffer::new);
    let buffers: Vec<_> = buffers.collect::<Result<_>>()?;
    for (parameter, buffer) in plan.parameters.iter().zip(buffers) {
        tell(done)?;
        let tensor = read(engine, &shards[parameter.shard], parameter, buffer)?;
        tensors.insert(parameter.name.clone(), tensor);
        done += parameter.tensor.byte_len();
        admission.has_grown_to(done);
    }
    tell(total)?;
    Ok(tensors)
}

/// Where a tensor is read to.
enum Buffer {
    /// Memory for MLX to adopt.
    Own(Pages),
    /// Too little for a mapping of its own, which would waste most of a page: it is copied.
    Copied(usize),
}

impl Buffer {
    fn new(parameter: &Parameter) -> Result<Self> {
        let bytes = usize::try_from(parameter.tensor.byte_len());
        match bytes.map_err(|_| too_large(parameter))? {
            few if few < ADOPT_FROM_BYTES => Ok(Self::Copied(few)),
            bytes => Pages::new(bytes).map(Self::Own),
        }
    }
}

fn read(
    engine: &Engine,
    shard: &Shard,
    parameter: &Parameter,
    buffer: Buffer,
) -> Result<Owned<Array>> {
    let shape = dimensions(parameter)?;
    let dtype = dtype(parameter)?;
    match buffer {
        Buffer::Copied(bytes) => {
            let mut bytes = vec![0; bytes];
            shard.read_exact_at(&parameter.tensor, &mut bytes)?;
            engine.run(move |mlx| Owned::new(mlx.copy(&bytes, &shape, dtype), mlx))
        }
        Buffer::Own(mut pages) => {
            shard.read_exact_at(&parameter.tensor, pages.as_mut_slice())?;
            let adopt = move |mlx: &Mlx| -> Result<_> {
                Ok(Owned::new(mlx.adopt(pages, &shape, dtype)?, mlx))
            };
            engine.run(adopt)?
        }
    }
}

fn dimensions(parameter: &Parameter) -> Result<Vec<i32>> {
    let shape = &parameter.tensor.shape;
    shape
        .iter()
        .map(|&length| i32::try_from(length).map_err(|_| too_large(parameter)))
        .collect()
}

fn too_large(parameter: &Parameter) -> Error {
    Error::new(
        Kind::Unsupported,
        format!("a tensor is too large: {}", parameter.name),
    )
}

fn dtype(parameter: &Parameter) -> Result<MlxDtype> {
    to_mlx_dtype(parameter.tensor.dtype).ok_or_else(|| {
        Error::new(
            Kind::Unsupported,
            format!(
                "a tensor has the unsupported type {}: {}",
                parameter.tensor.dtype_name(),
                parameter.name
            ),
        )
    })
}
