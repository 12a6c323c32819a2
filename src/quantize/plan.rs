//! What a conversion does, settled before it does any of it: the tensors of the target, how each
//! comes about, and what the configuration says of them.

use std::ops::Range;

use serde_json::{Map, Value};

use super::{
    FloatType, Matrices, Packings, Quantized,
    config::{entry, quantization_of},
    invalid,
    recipe::{Decision, decide},
    source::{Matrix, Module, Source, Tensor},
};
use crate::{
    error::Result,
    escape::{Escaped, EscapedPath},
    model::QuantizationParameters,
    safetensors::{Dtype, NewTensor},
};

/// All of a conversion.
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// The tensors of the target, under the names that they have there.
    pub(super) outputs: Vec<NewTensor>,
    pub(super) quantization: Change,
    pub(super) summary: Quantized,
    /// Bytes to read.
    pub(super) input_bytes: u64,
}

/// What the target's configuration says of packed matrices, compared with the source's.
#[derive(Debug, PartialEq)]
pub(super) enum Change {
    /// The same.
    None,
    /// Nothing any more.
    Removed,
    /// How those are packed that nothing else is said of, where the source says nothing, and
    /// entries for single modules.
    Added {
        default: QuantizationParameters,
        entries: Map<String, Value>,
    },
}

/// Some tensors of the source, read in step by rows, and what is made of them.
pub(super) struct Step {
    /// Each with the type that it gets before anything else happens.
    pub(super) inputs: Vec<(Tensor, Dtype)>,
    pub(super) work: Work,
    /// The first of the outputs: there is one, or for packed ones the weight, the scales and
    /// perhaps biases.
    pub(super) first_output: usize,
}

/// What happens to the inputs of a [`Step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Nothing but the change of type.
    Cast,
    /// One is packed.
    Quantize(QuantizationParameters),
    /// A weight, scales and perhaps biases become values of this type.
    Dequantize(QuantizationParameters, Dtype),
}

impl Step {
    /// Which of the outputs.
    pub(super) fn outputs(&self) -> Range<usize> {
        let count = match self.work {
            Work::Quantize(parameters) if parameters.has_biases() => 3,
            Work::Quantize(_) => 2,
            Work::Cast | Work::Dequantize(..) => 1,
        };
        self.first_output..self.first_output + count
    }

    pub(super) fn rows(&self) -> usize {
        self.inputs[0].0.rows()
    }

    /// Bytes of a row of all inputs and, in the widest type, of what is computed from them.
    pub(super) fn row_bytes(&self) -> usize {
        let read: usize = self
            .inputs
            .iter()
            .map(|(tensor, _)| tensor.row_bytes())
            .sum();
        match self.work {
            Work::Cast | Work::Quantize(_) => 2 * read,
            Work::Dequantize(parameters, _) => read + 4 * read * 8 / parameters.bits(),
        }
    }
}

impl Plan {
    /// Plans what becomes of `source`. `dtype` is the type that the caller asks for.
    ///
    /// # Errors
    /// [`crate::Kind::InvalidArgument`] naming a module that is not there or that cannot be
    /// packed as asked, or where everything is packed already.
    pub(super) fn new(
        source: &Source,
        matrices: &Matrices,
        dtype: Option<FloatType>,
    ) -> Result<Self> {
        if let Matrices::Quantize(packings) = matrices {
            check_modules(source, packings)?;
        }
        let mut maker = Maker {
            source,
            asked: dtype.map(FloatType::dtype),
            stated: stated_dtype(&source.config).map(FloatType::dtype),
            says_packings: quantization_of(&source.config).is_some(),
            kept: Vec::new(),
            steps: Vec::new(),
            outputs: Vec::new(),
            entries: Map::new(),
            added_count: 0,
            packed_count: 0,
            plain_count: 0,
            parameter_count: 0,
        };
        for module in &source.modules {
            maker.module(module, matrices)?;
        }
        if maker.added_count == 0
            && maker.packed_count > 0
            && matches!(matrices, Matrices::Quantize(_))
        {
            return Err(invalid(format!(
                "nothing to quantize: the matrices are packed already, dequantize them first: {}",
                EscapedPath(&source.path)
            )));
        }
        Ok(maker.finish(matrices))
    }
}

/// The type that the configuration says the weights have, where mlx-lm looks for it.
fn stated_dtype(config: &Map<String, Value>) -> Option<FloatType> {
    let there = |value: &&Value| !value.is_null();
    let text = |key: &str| config.get("text_config").and_then(|text| text.get(key));
    let stated = config.get("torch_dtype").filter(there);
    let stated = stated.or_else(|| text("dtype").filter(there))?;
    FloatType::from_name(stated.as_str()?)
}

/// Refuses settings of modules that the model does not have.
fn check_modules(source: &Source, packings: &Packings) -> Result<()> {
    let is_there = |path: &str| {
        let mut modules = source.modules.iter();
        modules.any(|module| module.path == path && module.matrix.is_some())
    };
    match packings.modules.iter().find(|(path, _)| !is_there(path)) {
        None => Ok(()),
        Some((path, _)) => Err(invalid(format!(
            "the model has no such matrix: {}",
            Escaped(path)
        ))),
    }
}

struct Maker<'a> {
    source: &'a Source,
    /// The type that the caller asks for, and the one that the configuration states.
    asked: Option<Dtype>,
    stated: Option<Dtype>,
    /// Whether the source's configuration says how matrices are packed.
    says_packings: bool,
    /// Where it does not: the modules that are packed already.
    kept: Vec<(String, QuantizationParameters)>,
    steps: Vec<Step>,
    outputs: Vec<NewTensor>,
    entries: Map<String, Value>,
    added_count: usize,
    packed_count: usize,
    plain_count: usize,
    parameter_count: u64,
}

impl Maker<'_> {
    fn module(&mut self, module: &Module, matrices: &Matrices) -> Result<()> {
        match &module.matrix {
            None => self.cast(&module.weight),
            Some(matrix) => self.matrix(module, matrix, matrices)?,
        }
        if let Some(bias) = &module.bias {
            self.cast(bias);
        }
        Ok(())
    }

    fn matrix(&mut self, module: &Module, matrix: &Matrix, matrices: &Matrices) -> Result<()> {
        self.parameter_count += matrix.rows as u64 * matrix.columns as u64;
        let weight = &module.weight;
        if let Some(packed) = &matrix.packed {
            let tensors = [Some(weight), Some(&packed.scales), packed.biases.as_ref()];
            let tensors = tensors.into_iter().flatten();
            if *matrices != Matrices::Dequantize {
                self.packed_count += 1;
                if !self.says_packings {
                    self.kept.push((self.name(module), packed.parameters));
                }
                tensors.for_each(|tensor| self.cast_only(tensor));
                return Ok(());
            }
            self.plain_count += 1;
            let inputs: Vec<_> = tensors.map(|t| (t.clone(), self.dtype_of(t))).collect();
            // MLX gives the affine mode's values the type of the scales, the others' this one.
            let own = match packed.scales.dtype {
                Dtype::U8 => Dtype::BF16,
                _ => inputs[1].1,
            };
            let to = self.asked.unwrap_or(own);
            let values = NewTensor {
                name: weight.name.clone(),
                dtype: to,
                shape: vec![matrix.rows, matrix.columns],
            };
            self.step(
                inputs,
                Work::Dequantize(packed.parameters, to),
                vec![values],
            );
            return Ok(());
        }
        let decision = match matrices {
            Matrices::Quantize(packings) => {
                let layers = self.source.model.layer_count;
                Some((
                    decide(packings, &module.path, matrix.columns, layers)?,
                    packings,
                ))
            }
            _ => None,
        };
        let parameters = match decision {
            None => None,
            Some((Decision::Plain, _)) => {
                self.say(module, Value::Bool(false));
                None
            }
            Some((Decision::Own(own), _)) => {
                self.say(module, entry(own));
                Some(own)
            }
            Some((Decision::Default, packings)) => {
                // What the source says of the others may be something else.
                if self.says_packings {
                    self.say(module, entry(packings.default));
                }
                Some(packings.default)
            }
        };
        let Some(parameters) = parameters else {
            self.plain_count += 1;
            self.cast_only(weight);
            return Ok(());
        };
        self.packed_count += 1;
        self.added_count += 1;
        let dtype = self.dtype_of(weight);
        let outputs = packed_tensors(&weight.name, matrix, parameters, dtype);
        self.step(
            vec![(weight.clone(), dtype)],
            Work::Quantize(parameters),
            outputs,
        );
        Ok(())
    }

    /// Has the configuration say something of a module.
    fn say(&mut self, module: &Module, what: Value) {
        self.entries.insert(self.name(module), what);
    }

    /// What a module is called in the target.
    fn name(&self, module: &Module) -> String {
        format!("{}{}", self.source.prefix, module.path)
    }

    /// The type that a tensor gets: floats the one that is asked for, or else stated.
    fn dtype_of(&self, tensor: &Tensor) -> Dtype {
        match tensor.dtype {
            Dtype::F32 | Dtype::F16 | Dtype::BF16 => {
                self.asked.or(self.stated).unwrap_or(tensor.dtype)
            }
            other => other,
        }
    }

    /// A tensor of parameters.
    fn cast(&mut self, tensor: &Tensor) {
        self.parameter_count += tensor
            .shape
            .iter()
            .map(|&size| size as u64)
            .product::<u64>();
        self.cast_only(tensor);
    }

    fn cast_only(&mut self, tensor: &Tensor) {
        let dtype = self.dtype_of(tensor);
        let output = tensor.renewed(dtype);
        self.step(vec![(tensor.clone(), dtype)], Work::Cast, vec![output]);
    }

    fn step(&mut self, inputs: Vec<(Tensor, Dtype)>, work: Work, outputs: Vec<NewTensor>) {
        self.steps.push(Step {
            inputs,
            work,
            first_output: self.outputs.len(),
        });
        self.outputs
            .extend(outputs.into_iter().map(|output| NewTensor {
                name: format!("{}{}", self.source.prefix, output.name),
                ..output
            }));
    }

    fn finish(self, matrices: &Matrices) -> Plan {
        let bytes = self.outputs.iter().filter_map(NewTensor::byte_len);
        let inputs = self.steps.iter().flat_map(|step| &step.inputs);
        let input_bytes =
            inputs.map(|(tensor, _)| tensor.rows() as u64 * tensor.row_bytes() as u64);
        let quantization = match matrices {
            Matrices::Dequantize => Change::Removed,
            Matrices::Keep => said_of(self.kept),
            Matrices::Quantize(packings) => {
                let kept = self.kept.into_iter();
                let kept = kept.map(|(path, parameters)| (path, entry(parameters)));
                Change::Added {
                    default: packings.default,
                    entries: kept.chain(self.entries).collect(),
                }
            }
        };
        Plan {
            summary: Quantized {
                tensor_bytes: bytes.sum(),
                parameter_count: self.parameter_count,
                packed_count: self.packed_count,
                plain_count: self.plain_count,
            },
            input_bytes: input_bytes.sum(),
            steps: self.steps,
            outputs: self.outputs,
            quantization,
        }
    }
}

/// What to say of packed modules of which the source says nothing: how most of them are packed,
/// and which ones are not like that.
fn said_of(kept: Vec<(String, QuantizationParameters)>) -> Change {
    let count = |wanted| {
        kept.iter()
            .filter(|(_, parameters)| *parameters == wanted)
            .count()
    };
    let Some(default) = kept.iter().map(|row| row.1).max_by_key(|row| count(*row)) else {
        return Change::None;
    };
    let others = kept
        .into_iter()
        .filter(|(_, parameters)| *parameters != default);
    Change::Added {
        default,
        entries: others
            .map(|(path, parameters)| (path, entry(parameters)))
            .collect(),
    }
}

/// The tensors that a plain weight of type `dtype` becomes, in the order in which MLX gives them.
fn packed_tensors(
    weight: &str,
    matrix: &Matrix,
    parameters: QuantizationParameters,
    dtype: Dtype,
) -> Vec<NewTensor> {
    let module = weight.strip_suffix(".weight").unwrap_or(weight);
    let tensor = |part: &str, dtype, columns| NewTensor {
        name: format!("{module}.{part}"),
        dtype,
        shape: vec![matrix.rows, columns],
    };
    let group_count = parameters.group_count(matrix.columns);
    let words = parameters.packed_columns(matrix.columns);
    let mut tensors = vec![tensor("weight", Dtype::U32, words)];
    if parameters.has_biases() {
        tensors.push(tensor("scales", dtype, group_count));
        tensors.push(tensor("biases", dtype, group_count));
    } else {
        tensors.push(tensor("scales", Dtype::U8, group_count));
    }
    tensors
}
