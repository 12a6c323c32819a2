//! GGUF files of llama-like models, seen as Hugging Face's folders have them: names, order of
//! rows, configuration, and the tokenizer.

mod config;
mod names;
mod rope;
mod tokenizer;

use std::{collections::HashMap, ops::Range, path::Path};

use serde_json::{Map, Value};

use super::source::{Files, Matrix, Module, Packed, Place, Source, Tensor};
use crate::{
    error::{Error, Kind, Result},
    escape::{Escaped, EscapedPath},
    gguf::{BLOCK, GgmlType, Gguf, Part, TensorInfo},
    model::{ModelConfig, QuantizationMode, QuantizationParameters, modules_of},
    safetensors::Dtype,
};

/// What a file's name ends with.
const SUFFIX: &str = "gguf";

/// Whether `path` is a file of this kind by its name.
pub(super) fn is_gguf(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case(SUFFIX))
        && path.is_file()
}

/// Where rows of a tensor come from.
#[derive(Clone)]
pub(super) struct Rows {
    /// Which tensor of the file.
    index: usize,
    /// What of its blocks; `None` of tensors that have none.
    part: Option<Part>,
    /// Rows of a head, where each head's rows lie in pairs.
    paired: Option<usize>,
}

impl Rows {
    /// The row of the file that is row `row` here: llama.cpp interleaves the two halves of each
    /// head of the query and key projections, as its rotary embedding wants them.
    fn in_file(&self, row: usize) -> usize {
        let Some(head) = self.paired else {
            return row;
        };
        let (first, within) = (row / head * head, row % head);
        let half = head / 2;
        first + within % half * 2 + within / half
    }

    /// Reads rows into `buffer`, which is exactly as long as they are.
    pub(super) fn read(&self, file: &Gguf, rows: Range<usize>, buffer: &mut [u8]) -> Result<()> {
        let tensor = &file.tensors()[self.index];
        let row_bytes = buffer.len() / rows.len().max(1);
        let Some(part) = self.part else {
            if self.paired.is_none() {
                return file.read_rows(tensor, rows, buffer);
            }
            for (row, to) in rows.zip(buffer.chunks_exact_mut(row_bytes)) {
                let row = self.in_file(row);
                file.read_rows(tensor, row..row + 1, to)?;
            }
            return Ok(());
        };
        let mut blocks = vec![0; tensor.row_bytes()];
        for (row, to) in rows.zip(buffer.chunks_exact_mut(row_bytes)) {
            let row = self.in_file(row);
            file.read_rows(tensor, row..row + 1, &mut blocks)?;
            tensor.kind.extract(&blocks, part, to);
        }
        Ok(())
    }
}

/// Looks at the model in the file at `path`.
///
/// # Errors
/// Those of opening the file; [`Kind::Unsupported`] naming an architecture, a type of tensors or
/// a setting that the library does not have; [`Kind::ModelFormat`] for tensors that are missing,
/// surplus, or of a wrong shape, and where there is no tokenizer.
pub(super) fn open(path: &Path) -> Result<Source> {
    let file = Gguf::open(path)?;
    let dir = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    read(path, dir, file)
        .map_err(|error| Error::new(error.kind(), format!("{}: {error}", EscapedPath(path))))
}

fn read(path: &Path, dir: &Path, file: Gguf) -> Result<Source> {
    let config = config::of(&file)?;
    let place = "metadata";
    let parsed = ModelConfig::parse(place, &Value::Object(config.clone()))?;
    let specs = modules_of(&parsed);
    let documents = if dir.join("tokenizer.json").is_file() {
        Map::new()
    } else {
        tokenizer::documents(file.metadata())?
    };
    let mut tensors: HashMap<&str, (usize, &TensorInfo)> = file
        .tensors()
        .iter()
        .enumerate()
        .map(|(index, tensor)| (tensor.name.as_str(), (index, tensor)))
        .collect();
    let mut modules = Vec::with_capacity(specs.len());
    for spec in &specs {
        let name = names::in_file(spec.path());
        let missing = || format_error("a tensor is missing", &name);
        let (index, tensor) = tensors.remove(name.as_str()).ok_or_else(missing)?;
        if tensor.shape != spec.weight_shape() {
            return Err(format_error(
                &format!(
                    "a tensor has shape {:?} where the metadata says {:?}",
                    tensor.shape,
                    spec.weight_shape()
                ),
                &name,
            ));
        }
        let is_paired = names::is_paired(spec.path());
        let paired = is_paired.then_some(parsed.head_dim);
        let from = From {
            index,
            tensor,
            paired,
        };
        modules.push(from.module(spec.path(), spec.matrix())?);
    }
    tensors.retain(|name, _| !names::is_derived(name));
    if let Some(name) = tensors.keys().min() {
        return Err(Error::new(
            Kind::Unsupported,
            format!(
                "a tensor belongs to no part of the model: {}",
                Escaped(name)
            ),
        ));
    }
    Ok(Source {
        path: path.to_owned(),
        dir: dir.to_owned(),
        config,
        documents,
        modules,
        prefix: "",
        model: parsed,
        files: Files::Gguf(file),
    })
}

fn format_error(what: &str, name: &str) -> Error {
    Error::new(Kind::ModelFormat, format!("{what}: {}", Escaped(name)))
}

/// A tensor of the file that becomes a module's weight.
struct From<'a> {
    index: usize,
    tensor: &'a TensorInfo,
    paired: Option<usize>,
}

impl From<'_> {
    fn module(&self, path: &str, matrix: Option<(usize, usize)>) -> Result<Module> {
        let kind = self.tensor.kind;
        let float = match kind {
            GgmlType::F32 => Some(Dtype::F32),
            GgmlType::F16 => Some(Dtype::F16),
            GgmlType::BF16 => Some(Dtype::BF16),
            _ => None,
        };
        let unsupported = || {
            Error::new(
                Kind::Unsupported,
                format!(
                    "a tensor has the unsupported type {}: {}",
                    kind.name(),
                    Escaped(&self.tensor.name)
                ),
            )
        };
        let shape = self.tensor.shape.clone();
        if let Some(dtype) = float {
            return Ok(Module {
                path: path.to_owned(),
                weight: self.part(path, "weight", dtype, shape, None),
                matrix: matrix.map(|(rows, columns)| Matrix {
                    rows,
                    columns,
                    packed: None,
                }),
                bias: None,
            });
        }
        let bits = kind.block_bits().ok_or_else(unsupported)?;
        let (rows, columns) = matrix.ok_or_else(unsupported)?;
        let parameters = QuantizationParameters::new(QuantizationMode::Affine, bits, BLOCK)
            .ok_or_else(unsupported)?;
        let groups = || vec![rows, parameters.group_count(columns)];
        let words = vec![rows, parameters.packed_columns(columns)];
        Ok(Module {
            path: path.to_owned(),
            weight: self.part(path, "weight", Dtype::U32, words, Some(Part::Words)),
            matrix: Some(Matrix {
                rows,
                columns,
                packed: Some(Packed {
                    parameters,
                    scales: self.part(path, "scales", Dtype::F16, groups(), Some(Part::Scales)),
                    biases: Some(self.part(
                        path,
                        "biases",
                        Dtype::F16,
                        groups(),
                        Some(Part::Biases),
                    )),
                }),
            }),
            bias: None,
        })
    }

    fn part(
        &self,
        path: &str,
        name: &str,
        dtype: Dtype,
        shape: Vec<usize>,
        part: Option<Part>,
    ) -> Tensor {
        Tensor {
            name: format!("{path}.{name}"),
            dtype,
            shape,
            place: Place::Gguf(Rows {
                index: self.index,
                part,
                paired: self.paired,
            }),
        }
    }
}
