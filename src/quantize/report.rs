//! What a conversion would cost in quality, without making it.

use std::{collections::HashMap, path::Path, sync::Arc};

use mlx_rs::{Array, Dtype as MlxDtype, transforms};
use serde_json::{Value, json};

use super::{
    Matrices, QuantizeOptions, bits_per_weight,
    convert::tell,
    invalid,
    piece::{Piece, check, compute, mlx_dtype},
    plan::{Plan, Work},
    source::Source,
};
use crate::{
    cancel::Cancel,
    engine::{
        Engine, Mlx, Owned, engine,
        mlx::{self, MlxResult},
    },
    error::{Error, Kind, Result},
    footprint::{Need, Shape},
    memory,
    model::{ModelConfig, Modules, Network, QuantizationParameters},
    safetensors::NewTensor,
    tokenizer::Tokenizer,
};

/// Tokens that are run at once, without those before them.
const WINDOW: usize = 128;

/// How far a quantized model is from its source on a text.
///
/// The measure is the Kullback-Leibler divergence of the quantized model's distribution over the
/// next token from the source's, in nats, on average over all positions of the text. The text is
/// cut into windows of 128 tokens, each of which is run by itself.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Positions: tokens of the text.
    pub token_count: usize,
    /// Of the model with all that would be quantized.
    pub divergence: f64,
    /// Bits that a parameter takes on average, scales and biases included.
    pub bits_per_weight: f64,
    /// The layers of which something would be quantized, the embedding and the head included.
    pub layers: Vec<LayerReport>,
}

/// How far the model is from its source when one layer alone is quantized.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LayerReport {
    /// Such as `model.layers.0`.
    pub path: String,
    /// As in [`Report`].
    pub divergence: f64,
    /// Of its own parameters.
    pub bits_per_weight: f64,
    /// How many these are.
    pub parameter_count: u64,
}

impl Report {
    /// The same as JSON.
    pub fn to_json(&self) -> Value {
        let layers = self.layers.iter().map(|layer| {
            json!({
                "path": layer.path,
                "divergence": layer.divergence,
                "bits_per_weight": layer.bits_per_weight,
                "parameter_count": layer.parameter_count,
            })
        });
        json!({
            "token_count": self.token_count,
            "divergence": self.divergence,
            "bits_per_weight": self.bits_per_weight,
            "layers": layers.collect::<Vec<_>>(),
        })
    }
}

pub(super) fn report(path: &Path, text: &str, mut options: QuantizeOptions<'_>) -> Result<Report> {
    Cancel::check(options.cancel.as_ref())?;
    let source = Source::open(path, options.dtype)?;
    if !matches!(options.matrices, Matrices::Quantize(_)) {
        return Err(invalid("a report needs matrices to be packed"));
    }
    let plan = Plan::new(&source, &options.matrices, options.dtype)?;
    let tokens = tokens(&source, text)?;
    let Layers(mut layers) = Layers::of(&source, &plan);
    layers.retain(|layer| layer.is_quantized);

    let engine = engine()?;
    let need = need(&source, &plan, tokens.len().min(WINDOW) as u64);
    let _admission = engine.run(move |mlx| memory::admit("the report", need, mlx))??;
    // The source counts as a run of its own, and so does all of it quantized.
    let runs = (tokens.len().div_ceil(WINDOW) * (layers.len() + 2)) as u64;
    let weights = Arc::new(load(engine, &source, &plan, &mut options, runs)?);

    let mut done = 0;
    let (mut whole, mut alone) = (0.0, vec![0.0; layers.len()]);
    let mut next = |options: &mut QuantizeOptions<'_>| {
        done += 1;
        tell(options, done - 1, runs)
    };
    for window in tokens.chunks(WINDOW) {
        let run = Run {
            engine,
            config: &source.model,
            weights: &weights,
            window,
        };
        next(&mut options)?;
        let expected = Arc::new(run.expected()?);
        next(&mut options)?;
        whole += run.divergence(&expected, Variant::All)?;
        for (sum, layer) in alone.iter_mut().zip(&layers) {
            next(&mut options)?;
            *sum += run.divergence(&expected, Variant::Layer(layer.path.clone()))?;
        }
    }
    next(&mut options)?;
    let count = tokens.len() as f64;
    let layers = layers
        .into_iter()
        .zip(alone)
        .map(|(layer, sum)| LayerReport {
            path: layer.path,
            divergence: sum / count,
            bits_per_weight: bits_per_weight(layer.tensor_bytes, layer.parameter_count),
            parameter_count: layer.parameter_count,
        });
    Ok(Report {
        token_count: tokens.len(),
        divergence: whole / count,
        bits_per_weight: plan.summary.bits_per_weight(),
        layers: layers.collect(),
    })
}

/// The ids of the text.
fn tokens(source: &Source, text: &str) -> Result<Vec<u32>> {
    let tokens = Tokenizer::load(&source.dir)?.encode(text, true)?;
    let vocabulary = source.model.vocab_size;
    if let Some(id) = tokens.iter().find(|&&id| id as usize >= vocabulary) {
        return Err(Error::new(
            Kind::ModelFormat,
            format!("a token id is not below the vocabulary's size {vocabulary}: {id}"),
        ));
    }
    if tokens.is_empty() {
        return Err(invalid("the text has no tokens"));
    }
    Ok(tokens)
}

/// The layer that a module or tensor belongs to: `model.layers.0`, or the module itself.
fn layer_of(path: &str) -> &str {
    let Some(rest) = path.strip_prefix("model.layers.") else {
        let part = path.rsplit_once('.').map(|(_, part)| part);
        let is_tensor = matches!(part, Some("weight" | "scales" | "biases" | "bias"));
        return match path.rsplit_once('.') {
            Some((module, _)) if is_tensor => module,
            _ => path,
        };
    };
    let number = rest.find('.').unwrap_or(rest.len());
    &path[..path.len() - rest.len() + number]
}

/// What a layer becomes.
struct Layer {
    path: String,
    is_quantized: bool,
    parameter_count: u64,
    tensor_bytes: u64,
}

/// The layers in the order of use.
#[derive(Default)]
struct Layers(Vec<Layer>);

impl Layers {
    fn of(source: &Source, plan: &Plan) -> Self {
        let mut layers = Self::default();
        for module in &source.modules {
            let layer = layers.get(layer_of(&module.path));
            layer.parameter_count += match &module.matrix {
                Some(matrix) => matrix.rows as u64 * matrix.columns as u64,
                None => module.weight.rows() as u64,
            };
            let bias = module.bias.as_ref();
            layer.parameter_count += bias.map_or(0, |bias| bias.rows() as u64);
        }
        for step in &plan.steps {
            let layer = layers.get(layer_of(&step.inputs[0].0.name));
            layer.is_quantized |= matches!(step.work, Work::Quantize(_));
            let outputs = plan.outputs[step.outputs()].iter();
            layer.tensor_bytes += outputs.filter_map(NewTensor::byte_len).sum::<u64>();
        }
        layers
    }

    /// The layer of this name, which is added where it is new.
    fn get(&mut self, path: &str) -> &mut Layer {
        let found = self.0.iter().rposition(|layer| layer.path == path);
        let index = found.unwrap_or_else(|| {
            self.0.push(Layer {
                path: path.to_owned(),
                is_quantized: false,
                parameter_count: 0,
                tensor_bytes: 0,
            });
            self.0.len() - 1
        });
        &mut self.0[index]
    }
}

/// What a report takes: all weights, plain and packed, and in a step the intermediate results of
/// a window with its logits, of both models.
fn need(source: &Source, plan: &Plan, window: u64) -> Need {
    let model = &source.model;
    let shape = Shape {
        layer_count: model.layer_count as u64,
        head_count: model.head_count as u64,
        kv_head_count: model.kv_head_count as u64,
        head_dim: model.head_dim as u64,
        hidden_size: model.hidden_size as u64,
        intermediate_size: model.intermediate_size as u64,
        vocab_size: model.vocab_size as u64,
        element_bytes: 4,
    };
    let inputs = plan.steps.iter().flat_map(|step| &step.inputs);
    let plain = inputs.map(|(tensor, dtype)| tensor.renewed(*dtype).byte_len().unwrap_or(0));
    let logits = 6 * 4 * window * shape.vocab_size;
    Need {
        lasting_bytes: plain.sum::<u64>() + plan.summary.tensor_bytes,
        step_bytes: shape.transient_bytes(window, window) + shape.kv_bytes(window) + logits,
    }
}

/// All weights, on the engine.
struct Weights {
    /// By name.
    plain: HashMap<String, Array>,
    /// How those of the source are packed that are.
    packings: HashMap<String, QuantizationParameters>,
    quantized: Vec<QuantizedModule>,
}

struct QuantizedModule {
    path: String,
    parameters: QuantizationParameters,
    /// The weight, the scales and perhaps the biases.
    parts: Vec<Array>,
}

/// Which modules are quantized.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Variant {
    None,
    All,
    Layer(String),
}

impl Weights {
    fn network(&self, config: &ModelConfig, variant: &Variant) -> Result<Network> {
        let (mut tensors, mut packings) = (self.plain.clone(), self.packings.clone());
        let is_quantized = |module: &&QuantizedModule| match variant {
            Variant::None => false,
            Variant::All => true,
            Variant::Layer(path) => layer_of(&module.path) == path,
        };
        for module in self.quantized.iter().filter(is_quantized) {
            packings.insert(module.path.clone(), module.parameters);
            for (part, array) in ["weight", "scales", "biases"].iter().zip(&module.parts) {
                tensors.insert(format!("{}.{part}", module.path), array.clone());
            }
        }
        Network::new(config, &mut Modules::new(tensors, packings))
    }
}

/// Reads all weights, and packs what is to be packed.
fn load(
    engine: &Engine,
    source: &Source,
    plan: &Plan,
    options: &mut QuantizeOptions<'_>,
    runs: u64,
) -> Result<Owned<Weights>> {
    let mut loaded = Vec::new();
    for step in &plan.steps {
        tell(options, 0, runs)?;
        let (tensor, dtype) = &step.inputs[0];
        let mut piece = Piece::read(source, tensor, 0..step.rows())?;
        check(tensor, *dtype, piece.memory.bytes())?;
        let (work, dtype) = (step.work, mlx_dtype(*dtype)?);
        let arrays = engine.run(move |mlx| -> Result<Owned<Vec<Array>>> {
            let plain = piece.into_array(mlx)?.as_dtype(dtype)?;
            let mut arrays = match work {
                Work::Cast => Vec::new(),
                work => compute(work, std::slice::from_ref(&plain))?,
            };
            arrays.push(plain);
            transforms::eval(&arrays)?;
            Ok(Owned::new(arrays, mlx))
        })??;
        loaded.push((tensor.name.clone(), work, arrays));
    }
    let packed = source.modules.iter().filter_map(|module| {
        let packed = module.matrix.as_ref()?.packed.as_ref()?;
        Some((module.path.clone(), packed.parameters))
    });
    let packings = packed.collect();
    engine.run(move |mlx| {
        let mut weights = Weights {
            plain: HashMap::new(),
            packings,
            quantized: Vec::new(),
        };
        for (name, work, arrays) in loaded {
            let mut parts = arrays.into_inner(mlx);
            let plain = parts.pop();
            if let Work::Quantize(parameters) = work {
                weights.quantized.push(QuantizedModule {
                    path: name.strip_suffix(".weight").unwrap_or(&name).to_owned(),
                    parameters,
                    parts,
                });
            }
            weights.plain.extend(plain.map(|plain| (name, plain)));
        }
        Owned::new(weights, mlx)
    })
}

/// The runs of one window.
struct Run<'a> {
    engine: &'a Engine,
    config: &'a ModelConfig,
    weights: &'a Arc<Owned<Weights>>,
    window: &'a [u32],
}

impl Run<'_> {
    /// The source's log-probabilities \[window, vocabulary\].
    fn expected(&self) -> Result<Owned<Array>> {
        self.on_engine(Variant::None, |logs, mlx| Ok(Owned::new(logs, mlx)))
    }

    /// The divergence of a variant from what is expected, summed up over the window.
    fn divergence(&self, expected: &Arc<Owned<Array>>, variant: Variant) -> Result<f64> {
        let expected = Arc::clone(expected);
        self.on_engine(variant, move |logs, mlx| {
            let expected = expected.get(mlx);
            let terms = expected.exp()?.multiply(expected.subtract(&logs)?)?;
            let rows = mlx::bytes(&terms.sum_axis(-1, false)?)?;
            let rows = rows.as_chunks::<4>().0.iter();
            Ok(rows.map(|row| f64::from(f32::from_le_bytes(*row))).sum())
        })
    }

    /// Gives a variant's log-probabilities to `then`, in one step of the engine.
    fn on_engine<T: Send + 'static>(
        &self,
        variant: Variant,
        then: impl FnOnce(Array, &Mlx) -> MlxResult<T> + Send + 'static,
    ) -> Result<T> {
        let (weights, config) = (Arc::clone(self.weights), self.config.clone());
        let window = self.window.to_vec();
        self.engine.run(move |mlx| -> Result<T> {
            let network = weights.get(mlx).network(&config, &variant)?;
            let ids = Array::from_slice(&window, &[1, window.len() as i32]);
            let hidden = network.forward(&ids, &mut network.new_cache())?;
            let logits = network.logits(&hidden)?.as_dtype(MlxDtype::Float32)?;
            let logs = logits.subtract(logits.logsumexp_axis(-1, true)?)?;
            logs.eval()?;
            Ok(then(logs, mlx)?)
        })?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_and_tensors_belong_to_layers() {
        for (path, layer) in [
            ("model.embed_tokens", "model.embed_tokens"),
            ("model.embed_tokens.weight", "model.embed_tokens"),
            ("lm_head.scales", "lm_head"),
            ("lm_head", "lm_head"),
            ("model.layers.12.mlp.up_proj.weight", "model.layers.12"),
            ("model.layers.0.input_layernorm", "model.layers.0"),
            ("model.norm.weight", "model.norm"),
        ] {
            assert_eq!(layer_of(path), layer);
        }
    }
}
