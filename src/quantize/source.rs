//! Where a conversion reads from, seen as the modules of a model.

use std::{
    collections::HashMap,
    ops::Range,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use super::{FloatType, gguf};
use crate::{
    error::{Error, Kind, Result},
    escape::{Escaped, EscapedPath},
    gguf::Gguf,
    model::{ModelConfig, Parameter, QuantizationParameters, Weights},
    safetensors::{Dtype, NewTensor, Shard, TensorInfo},
    snapshot::{Snapshot, read_json},
};

/// A model to convert.
pub(super) struct Source {
    /// What was asked for: for messages.
    pub(super) path: PathBuf,
    /// Where the files beside the weights are.
    pub(super) dir: PathBuf,
    /// The content of `config.json`.
    pub(super) config: Map<String, Value>,
    /// The tokenizer's files, by name, where there are none in `dir`.
    pub(super) documents: Map<String, Value>,
    /// In the order of use.
    pub(super) modules: Vec<Module>,
    /// What the names of all modules begin with, where the text model is part of a larger one.
    pub(super) prefix: &'static str,
    pub(super) model: ModelConfig,
    pub(super) files: Files,
}

/// What the tensors lie in.
pub(super) enum Files {
    Shards(Vec<Shard>),
    Gguf(Gguf),
}

/// A module with its tensors.
pub(super) struct Module {
    /// As it is called in the text model alone.
    pub(super) path: String,
    pub(super) weight: Tensor,
    /// Where it has a matrix.
    pub(super) matrix: Option<Matrix>,
    /// What is added to the product.
    pub(super) bias: Option<Tensor>,
}

/// What there is to say of a module's matrix.
pub(super) struct Matrix {
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Where the weight is packed.
    pub(super) packed: Option<Packed>,
}

/// What comes with a packed weight.
pub(super) struct Packed {
    pub(super) parameters: QuantizationParameters,
    pub(super) scales: Tensor,
    pub(super) biases: Option<Tensor>,
}

/// A tensor of the source.
#[derive(Clone)]
pub(super) struct Tensor {
    /// As the text model calls it.
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) place: Place,
}

/// Where in them a tensor lies.
#[derive(Clone)]
pub(super) enum Place {
    Shard { shard: usize, tensor: TensorInfo },
    Gguf(gguf::Rows),
}

impl Tensor {
    /// The first dimension.
    pub(super) fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Bytes of one row.
    pub(super) fn row_bytes(&self) -> usize {
        let elements: usize = self.shape.iter().skip(1).product();
        // Types whose elements fill no whole bytes are refused before.
        elements * self.dtype.bits().unwrap_or(8) as usize / 8
    }

    /// The tensor under the same name in the target, with elements of type `dtype`.
    pub(super) fn renewed(&self, dtype: Dtype) -> NewTensor {
        NewTensor {
            name: self.name.clone(),
            dtype,
            shape: self.shape.clone(),
        }
    }
}

impl Source {
    /// Looks at the model at `path`, whose numbers are to be of type `dtype`.
    ///
    /// # Errors
    /// Those of loading it, and [`Kind::ModelFormat`] for an index that passes over a tensor.
    pub(super) fn open(path: &Path, dtype: Option<FloatType>) -> Result<Self> {
        if gguf::is_gguf(path) {
            let mut source = gguf::open(path)?;
            if let Some(dtype) = dtype {
                // This configuration is made, not kept.
                let stated = source.config.get_mut("torch_dtype");
                stated
                    .into_iter()
                    .for_each(|stated| *stated = dtype.name().into());
            }
            return Ok(source);
        }
        let weights = Weights::find(path)?;
        check_index(&weights)?;
        let Weights {
            snapshot,
            config,
            shards,
            modules,
            plan,
        } = weights;
        let is_part = plan.parameters.iter().any(|p| p.name != p.tensor.name);
        let mut tensors: HashMap<String, Tensor> = plan
            .parameters
            .into_iter()
            .map(|parameter| (parameter.name.clone(), tensor_of(parameter)))
            .collect();
        let mut packings = plan.packings;
        let modules = modules
            .iter()
            .map(|spec| {
                let module = spec.path();
                let mut take = |part: &str| tensors.remove(&format!("{module}.{part}"));
                let weight = take("weight").ok_or_else(|| absent(module))?;
                let packed = match packings.remove(module) {
                    None => None,
                    Some(parameters) => Some(Packed {
                        parameters,
                        scales: take("scales").ok_or_else(|| absent(module))?,
                        biases: take("biases"),
                    }),
                };
                let matrix = spec.matrix().map(|(rows, columns)| Matrix {
                    rows,
                    columns,
                    packed,
                });
                Ok(Module {
                    path: module.to_owned(),
                    weight,
                    matrix,
                    bias: take("bias"),
                })
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            path: path.to_owned(),
            dir: snapshot.dir().to_owned(),
            config: read_config(&snapshot)?,
            documents: Map::new(),
            modules,
            prefix: if is_part { "language_model." } else { "" },
            model: config,
            files: Files::Shards(shards),
        })
    }

    /// Reads rows of a tensor into `buffer`, which is exactly as long as they are.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] when the file has become shorter, and what the system reports; both
    /// name the file and the tensor.
    pub(super) fn read(
        &self,
        tensor: &Tensor,
        rows: Range<usize>,
        buffer: &mut [u8],
    ) -> Result<()> {
        match (&self.files, &tensor.place) {
            (
                Files::Shards(shards),
                Place::Shard {
                    shard,
                    tensor: info,
                },
            ) => {
                let offset = rows.start as u64 * tensor.row_bytes() as u64;
                shards[*shard].read_part_at(info, offset, buffer)
            }
            (Files::Gguf(file), Place::Gguf(place)) => place.read(file, rows, buffer),
            // A source's tensors lie in its own files.
            _ => Err(absent(&tensor.name)),
        }
    }
}

fn tensor_of(parameter: Parameter) -> Tensor {
    Tensor {
        name: parameter.name,
        dtype: parameter.tensor.dtype,
        shape: parameter.tensor.shape.clone(),
        place: Place::Shard {
            shard: parameter.shard,
            tensor: parameter.tensor,
        },
    }
}

fn absent(module: &str) -> Error {
    Error::new(
        Kind::ModelFormat,
        format!("a module has no weights: {}", Escaped(module)),
    )
}

fn read_config(snapshot: &Snapshot) -> Result<Map<String, Value>> {
    let name = "config.json";
    match read_json(snapshot.dir(), name)? {
        Some(Value::Object(config)) => Ok(config),
        // It was read a moment ago.
        _ => Err(Error::new(
            Kind::NotFound,
            format!("no such file: {}", EscapedPath(&snapshot.dir().join(name))),
        )),
    }
}

/// Refuses an index that names the files in use but not all of their tensors: other programs,
/// which follow it, would leave these out.
fn check_index(weights: &Weights) -> Result<()> {
    let name = "model.safetensors.index.json";
    let dir = weights.snapshot.dir();
    // One that is malformed is passed over beside a whole single file.
    let Ok(Some(index)) = read_json(dir, name) else {
        return Ok(());
    };
    let Some(map) = index.get("weight_map").and_then(Value::as_object) else {
        return Ok(());
    };
    let files = weights.snapshot.weights();
    let is_named = |file: &str| map.values().any(|value| value == file);
    for parameter in &weights.plan.parameters {
        let file = &files[parameter.shard].name;
        if is_named(file) && map.get(&parameter.tensor.name).is_none() {
            return Err(Error::new(
                Kind::ModelFormat,
                format!(
                    "{}: no entry for a tensor of {}: {}",
                    EscapedPath(&dir.join(name)),
                    Escaped(file),
                    Escaped(&parameter.tensor.name)
                ),
            ));
        }
    }
    Ok(())
}
