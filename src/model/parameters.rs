//! Matching the tensors of a folder with the modules of an architecture, before any data is
//! read: everything that is missing, surplus or of the wrong shape is found here.

use std::{
    borrow::Cow,
    collections::{HashMap, hash_map::Entry},
};

use mlx_rs::Array;

use super::{
    module_path::in_text_model,
    modules::{Embedding, Linear, Matrix},
    quantization::{ModuleQuantization, Quantization, QuantizationParameters},
};
use crate::{
    engine::mlx::MlxResult,
    error::{Error, Kind, Result},
    escape::Escaped,
    safetensors::{Dtype, Shard, TensorInfo},
};

/// A module that an architecture needs: where it stands and what shape it has.
pub(crate) struct ModuleSpec {
    path: String,
    shape: ModuleShape,
}

enum ModuleShape {
    /// \[out, in\], and a bias \[out\] perhaps.
    Linear {
        out: usize,
        input: usize,
        bias: bool,
    },
    /// \[rows, columns\].
    Embedding { rows: usize, columns: usize },
    /// \[dim\].
    Norm { dim: usize },
}

impl ModuleSpec {
    pub(crate) fn linear(path: impl Into<String>, out: usize, input: usize, bias: bool) -> Self {
        let shape = ModuleShape::Linear { out, input, bias };
        let path = path.into();
        Self { path, shape }
    }

    pub(crate) fn embedding(path: impl Into<String>, rows: usize, columns: usize) -> Self {
        let shape = ModuleShape::Embedding { rows, columns };
        let path = path.into();
        Self { path, shape }
    }

    pub(crate) fn norm(path: impl Into<String>, dim: usize) -> Self {
        let shape = ModuleShape::Norm { dim };
        let path = path.into();
        Self { path, shape }
    }

    /// Where it stands in the text model.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The shape of its weight.
    pub(crate) fn weight_shape(&self) -> Vec<usize> {
        match self.shape {
            ModuleShape::Linear { out, input, .. } => vec![out, input],
            ModuleShape::Embedding { rows, columns } => vec![rows, columns],
            ModuleShape::Norm { dim } => vec![dim],
        }
    }

    /// Rows and columns of its matrix, where it has one, which can then be packed.
    pub(crate) fn matrix(&self) -> Option<(usize, usize)> {
        match self.shape {
            ModuleShape::Linear { out, input, .. } => Some((out, input)),
            ModuleShape::Embedding { rows, columns } => Some((rows, columns)),
            ModuleShape::Norm { .. } => None,
        }
    }
}

/// A tensor to read: which shard, which tensor of it, and its name in the model.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) shard: usize,
    pub(crate) tensor: TensorInfo,
}

/// Everything to read, in the order of use, and how packed matrices are packed.
pub(crate) struct Plan {
    pub(crate) parameters: Vec<Parameter>,
    /// By module, of those that are packed.
    pub(crate) packings: HashMap<String, QuantizationParameters>,
}

impl Plan {
    /// Finds the tensors of `modules` among those of `shards`, of which the first `main_count`
    /// are the model's own and the rest lie beside it.
    ///
    /// # Errors
    /// [`Kind::ModelFormat`] naming a tensor that is missing, surplus, twice there, or of a
    /// wrong shape or type.
    pub(crate) fn new(
        modules: &[ModuleSpec],
        shards: &[Shard],
        main_count: usize,
        quantization: &Quantization,
        head_is_tied: bool,
    ) -> Result<Self> {
        let mut finder = Finder::new(shards, main_count)?;
        let mut plan = Self {
            parameters: Vec::new(),
            packings: HashMap::new(),
        };
        for module in modules {
            match module.shape {
                ModuleShape::Norm { dim } => {
                    let weight = finder.take(&format!("{}.weight", module.path))?;
                    expect_float(&weight, &[dim])?;
                    plan.parameters.push(weight);
                }
                ModuleShape::Linear { out, input, bias } => {
                    plan.matrix(&mut finder, &module.path, out, input, quantization)?;
                    if bias {
                        let bias = finder.take(&format!("{}.bias", module.path))?;
                        expect_float(&bias, &[out])?;
                        plan.parameters.push(bias);
                    }
                }
                ModuleShape::Embedding { rows, columns } => {
                    plan.matrix(&mut finder, &module.path, rows, columns, quantization)?;
                }
            }
        }
        finder.expect_nothing_left(main_count, head_is_tied)?;
        Ok(plan)
    }

    /// Bytes of one number of the activations: those of the widest float among the weights,
    /// to which MLX promotes.
    pub(crate) fn element_bytes(&self) -> u64 {
        let is_wide = |parameter: &Parameter| parameter.tensor.dtype == Dtype::F32;
        if self.parameters.iter().any(is_wide) {
            4
        } else {
            2
        }
    }

    /// Bytes of all tensors.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = self.parameters.iter().map(|p| p.tensor.byte_len());
        bytes.fold(0, u64::saturating_add)
    }

    fn matrix(
        &mut self,
        finder: &mut Finder<'_>,
        path: &str,
        rows: usize,
        columns: usize,
        quantization: &Quantization,
    ) -> Result<()> {
        let weight = finder.take(&format!("{path}.weight"))?;
        let Some(scales) = finder.take_if_there(&format!("{path}.scales")) else {
            if weight.tensor.dtype == Dtype::U32 {
                return Err(missing(&format!("{path}.scales")));
            }
            expect_float(&weight, &[rows, columns])?;
            self.parameters.push(weight);
            return Ok(());
        };
        let parameters = match quantization.for_module(path) {
            ModuleQuantization::NotQuantized => {
                return Err(surplus(&scales.name).with_detail(format!(
                    "the configuration says that {path} is not quantized"
                )));
            }
            ModuleQuantization::Packed(parameters) => parameters,
            ModuleQuantization::Unspecified => QuantizationParameters::infer(
                path,
                &weight.tensor.shape,
                &scales.tensor.shape,
                columns,
                scales.tensor.dtype == Dtype::U8,
            )?,
        };
        if !parameters.divides(columns) {
            return Err(format_error(
                &format!(
                    "rows of {columns} cannot be packed in groups of {}",
                    parameters.group_size()
                ),
                path,
            ));
        }
        let packed_columns = parameters.packed_columns(columns);
        let group_count = parameters.group_count(columns);
        expect(&weight, &[Dtype::U32], &[rows, packed_columns])?;
        self.parameters.push(weight);
        if parameters.has_biases() {
            expect_float(&scales, &[rows, group_count])?;
            let biases = finder.take(&format!("{path}.biases"))?;
            expect_float(&biases, &[rows, group_count])?;
            self.parameters.extend([scales, biases]);
        } else {
            expect(&scales, &[Dtype::U8], &[rows, group_count])?;
            self.parameters.push(scales);
        }
        self.packings.insert(path.to_owned(), parameters);
        Ok(())
    }
}

/// The tensors of all shards by their name in the model.
struct Finder<'a> {
    tensors: HashMap<Cow<'a, str>, (usize, &'a TensorInfo)>,
}

impl<'a> Finder<'a> {
    fn new(shards: &'a [Shard], main_count: usize) -> Result<Self> {
        let mut tensors = HashMap::new();
        for (index, shard) in shards.iter().enumerate() {
            for tensor in shard.tensors() {
                match tensors.entry(in_text_model(&tensor.name)) {
                    Entry::Vacant(place) => {
                        place.insert((index, tensor));
                    }
                    Entry::Occupied(_) if index >= main_count => {}
                    Entry::Occupied(_) => {
                        return Err(format_error("a tensor is in two places", &tensor.name));
                    }
                }
            }
        }
        Ok(Self { tensors })
    }

    fn take_if_there(&mut self, name: &str) -> Option<Parameter> {
        let (shard, tensor) = self.tensors.remove(name)?;
        Some(Parameter {
            name: name.to_owned(),
            shard,
            tensor: tensor.clone(),
        })
    }

    fn take(&mut self, name: &str) -> Result<Parameter> {
        self.take_if_there(name).ok_or_else(|| missing(name))
    }

    fn expect_nothing_left(self, main_count: usize, head_is_tied: bool) -> Result<()> {
        let mut left = self
            .tensors
            .into_iter()
            .filter(|(name, (shard, _))| *shard < main_count && !is_for_others(name, head_is_tied))
            .map(|(name, _)| name)
            .collect::<Vec<_>>();
        left.sort_unstable();
        match left.first() {
            None => Ok(()),
            Some(name) => Err(surplus(name).with_detail(left.join("\n"))),
        }
    }
}

/// Tensors that a text model does without: a head that the embedding replaces, rotary tables
/// that are computed, the towers of other modalities, the layers that predict further tokens.
fn is_for_others(name: &str, head_is_tied: bool) -> bool {
    const PREFIXES: [&str; 13] = [
        "vision_tower.",
        "vision_model.",
        "visual.",
        "model.visual.",
        "model.vision_tower.",
        "model.vision_model.",
        "multi_modal_projector.",
        "model.multi_modal_projector.",
        "audio_tower.",
        "model.audio_tower.",
        "mtp.",
        "model.mtp.",
        "model.audio_model.",
    ];
    (head_is_tied && name.starts_with("lm_head."))
        || name.ends_with("rotary_emb.inv_freq")
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn expect_float(parameter: &Parameter, shape: &[usize]) -> Result<()> {
    expect(parameter, &[Dtype::F32, Dtype::BF16, Dtype::F16], shape)
}

fn expect(parameter: &Parameter, dtypes: &[Dtype], shape: &[usize]) -> Result<()> {
    let tensor = &parameter.tensor;
    if tensor.shape != shape {
        return Err(format_error(
            &format!(
                "a tensor has shape {:?} where the configuration says {shape:?}",
                tensor.shape
            ),
            &tensor.name,
        ));
    }
    if !dtypes.contains(&tensor.dtype) {
        return Err(format_error(
            &format!("a tensor has the wrong type {}", tensor.dtype_name()),
            &tensor.name,
        ));
    }
    Ok(())
}

fn missing(name: &str) -> Error {
    format_error("a tensor is missing", name)
}

fn surplus(name: &str) -> Error {
    format_error("a tensor belongs to no part of the model", name)
}

fn format_error(what: &str, name: &str) -> Error {
    Error::new(Kind::ModelFormat, format!("{what}: {}", Escaped(name)))
}

/// The loaded tensors, from which an architecture takes its modules.
pub(crate) struct Modules {
    tensors: HashMap<String, Array>,
    packings: HashMap<String, QuantizationParameters>,
}

impl Modules {
    /// `packings`: by module, of those whose tensors are packed.
    pub(crate) fn new(
        tensors: HashMap<String, Array>,
        packings: HashMap<String, QuantizationParameters>,
    ) -> Self {
        Self { tensors, packings }
    }

    fn take(&mut self, name: &str) -> Result<Array> {
        self.tensors.remove(name).ok_or_else(|| missing(name))
    }

    fn matrix(&mut self, path: &str) -> Result<Matrix> {
        let weight = self.take(&format!("{path}.weight"))?;
        let made: MlxResult<Matrix> = match self.packings.get(path).copied() {
            None => Matrix::dense(weight),
            Some(parameters) => Ok(Matrix::Packed {
                weight,
                scales: self.take(&format!("{path}.scales"))?,
                biases: self.tensors.remove(&format!("{path}.biases")),
                packing: parameters.as_packing(),
            }),
        };
        Ok(made?)
    }

    pub(crate) fn linear(&mut self, path: &str) -> Result<Linear> {
        Ok(Linear {
            matrix: self.matrix(path)?,
            bias: self.tensors.remove(&format!("{path}.bias")),
        })
    }

    pub(crate) fn embedding(&mut self, path: &str) -> Result<Embedding> {
        self.matrix(path).map(Embedding)
    }

    pub(crate) fn norm(&mut self, path: &str) -> Result<Array> {
        self.take(&format!("{path}.weight"))
    }
}
