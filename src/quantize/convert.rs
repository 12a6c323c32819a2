//! Doing what was planned: a few rows at a time, read and written here and computed on the
//! engine.

use std::{ops::Range, path::Path};

use mlx_rs::{Array, Dtype as MlxDtype};
use serde_json::Value;

use super::{
    QuantizeOptions, Quantized, auxiliary, card, config,
    output::Output,
    plan::{Plan, Step, Work},
    source::{Source, Tensor},
    target::Staging,
    values::{Flaw, flaw},
};
use crate::{
    cancel::{Cancel, Flow, cancelled},
    engine::{Engine, Mlx, Pages, engine, mlx},
    error::{Error, Kind, Result},
    escape::Escaped,
    footprint::Need,
    memory,
    model::to_mlx_dtype,
    safetensors::Dtype,
    snapshot::read_json,
};

/// Bytes of memory that a piece of work may take, unless a single row takes more. Large enough
/// that handing it over costs nothing, and small enough that others wait for it no longer than
/// for a chunk of a prompt.
const PIECE_BYTES: usize = 32 << 20;

/// Smaller pieces are copied: a mapping of their own would waste most of a page.
const ADOPT_FROM_BYTES: usize = 64 * 1024;

pub(super) fn convert(
    source: &Path,
    target: &Path,
    mut options: QuantizeOptions<'_>,
) -> Result<Quantized> {
    Cancel::check(options.cancel.as_ref())?;
    let source = Source::open(source, options.dtype)?;
    let plan = Plan::new(&source, &options.matrices, options.dtype)?;
    let staging = Staging::new(target, &source.dir, options.overwrite)?;
    staging.expect_room(plan.summary.tensor_bytes)?;
    write_documents(&source, &plan, staging.dir())?;

    let engine = engine()?;
    let pieces = plan
        .steps
        .iter()
        .map(|step| step.row_bytes() * piece_rows(step));
    let need = Need {
        lasting_bytes: 0,
        step_bytes: pieces.max().unwrap_or(0) as u64,
    };
    let _admission = engine.run(move |mlx| memory::admit("the conversion", need, mlx))??;
    let mut output = Output::new(staging.dir(), &plan.outputs, options.most_shard_bytes);
    let mut done = 0;
    for step in &plan.steps {
        for rows in pieces_of(step) {
            tell(&mut options, done, plan.input_bytes)?;
            let mut parts = make(engine, &source, step, rows.clone())?;
            for (index, part) in parts.iter_mut().enumerate() {
                output.append(step.first_output + index, part.bytes())?;
            }
            let row_bytes = step
                .inputs
                .iter()
                .map(|(tensor, _)| tensor.row_bytes() as u64);
            done += rows.len() as u64 * row_bytes.sum::<u64>();
        }
    }
    tell(&mut options, done, plan.input_bytes)?;
    output.finish(&plan.summary)?;
    staging.publish()?;
    Ok(plan.summary)
}

/// Writes everything but the weights.
fn write_documents(source: &Source, plan: &Plan, dir: &Path) -> Result<()> {
    let generation = read_json(&source.dir, "generation_config.json")?;
    let config = config::of_target(
        source.config.clone(),
        generation.as_ref(),
        &plan.quantization,
    );
    let config = config::pretty(&Value::Object(config));
    auxiliary::write(&dir.join("config.json"), &config)?;
    auxiliary::copy(&source.dir, dir)?;
    for (name, document) in &source.documents {
        let path = dir.join(name);
        // What lies beside the weights counts more than what they say of it.
        if !path.exists() {
            auxiliary::write(&path, &config::pretty(document))?;
        }
    }
    let own_card = auxiliary::read_card(&source.dir)?;
    let card = card::of_target(
        own_card.as_deref(),
        card::repository(&source.dir).as_deref(),
    );
    auxiliary::write(&dir.join(auxiliary::CARD), &card)
}

fn tell(options: &mut QuantizeOptions<'_>, done: u64, total: u64) -> Result<()> {
    let on_progress = options.on_progress.as_mut();
    match on_progress.map_or(Flow::Continue, |on_progress| on_progress(done, total)) {
        Flow::Stop => Err(cancelled()),
        Flow::Continue => Cancel::check(options.cancel.as_ref()),
    }
}

/// As many rows as go together.
fn piece_rows(step: &Step) -> usize {
    (PIECE_BYTES / step.row_bytes().max(1)).clamp(1, step.rows())
}

fn pieces_of(step: &Step) -> impl Iterator<Item = Range<usize>> {
    let (rows, piece) = (step.rows(), piece_rows(step));
    (0..rows)
        .step_by(piece)
        .map(move |start| start..rows.min(start + piece))
}

/// Reads rows of a step's inputs and makes the same rows of its outputs.
fn make(engine: &Engine, source: &Source, step: &Step, rows: Range<usize>) -> Result<Vec<Memory>> {
    let mut inputs = Vec::with_capacity(step.inputs.len());
    for (tensor, dtype) in &step.inputs {
        let mut piece = Piece::read(source, tensor, rows.clone())?;
        check(tensor, *dtype, piece.memory.bytes())?;
        if step.work == Work::Cast && *dtype == tensor.dtype {
            return Ok(vec![piece.memory]);
        }
        inputs.push((piece, mlx_dtype(*dtype)?));
    }
    let work = step.work;
    let parts = engine.run(move |mlx| -> Result<Vec<Vec<u8>>> {
        let mut arrays = Vec::with_capacity(inputs.len());
        for (piece, dtype) in inputs {
            arrays.push(piece.into_array(mlx)?.as_dtype(dtype)?);
        }
        let outputs = compute(work, &arrays)?;
        Ok(outputs
            .iter()
            .map(mlx::bytes)
            .collect::<mlx::MlxResult<_>>()?)
    })??;
    if let Work::Dequantize(..) = work {
        // Finite factors may have a product that is not.
        check_made(step, &parts)?;
    }
    Ok(parts.into_iter().map(Memory::Small).collect())
}

fn compute(work: Work, arrays: &[Array]) -> Result<Vec<Array>> {
    Ok(match (work, arrays) {
        (Work::Quantize(parameters), [weight]) => mlx::quantize(weight, parameters.as_packing())?,
        (Work::Dequantize(parameters, dtype), [weight, scales, biases @ ..]) => {
            let packing = parameters.as_packing();
            let values = mlx::dequantize(weight, scales, biases.first(), packing)?;
            vec![values.as_dtype(mlx_dtype(dtype)?)?]
        }
        (_, arrays) => arrays.to_vec(),
    })
}

fn check(tensor: &Tensor, dtype: Dtype, bytes: &[u8]) -> Result<()> {
    match flaw(bytes, tensor.dtype, dtype) {
        None => Ok(()),
        Some(Flaw::NotFinite) => Err(not_finite(&tensor.name)),
        Some(Flaw::TooLarge) => Err(too_large(&tensor.name, dtype)),
    }
}

fn check_made(step: &Step, parts: &[Vec<u8>]) -> Result<()> {
    let Work::Dequantize(_, dtype) = step.work else {
        return Ok(());
    };
    match parts.iter().find_map(|part| flaw(part, dtype, dtype)) {
        None => Ok(()),
        Some(_) => Err(too_large(&step.inputs[0].0.name, dtype)),
    }
}

fn not_finite(name: &str) -> Error {
    Error::new(
        Kind::ModelFormat,
        format!(
            "a tensor holds a value that is no finite number: {}",
            Escaped(name)
        ),
    )
}

fn too_large(name: &str, dtype: Dtype) -> Error {
    Error::new(
        Kind::ModelFormat,
        format!(
            "a tensor holds a value that is too large for {}: {}",
            dtype.name().unwrap_or_default(),
            Escaped(name)
        ),
    )
}

/// Rows of a tensor, read.
struct Piece {
    memory: Memory,
    shape: Vec<i32>,
    dtype: Dtype,
}

enum Memory {
    /// For MLX to adopt.
    Pages(Pages),
    /// For MLX to copy.
    Small(Vec<u8>),
}

impl Memory {
    fn new(length: usize) -> Result<Self> {
        if length < ADOPT_FROM_BYTES {
            return Ok(Self::Small(vec![0; length]));
        }
        Pages::new(length).map(Self::Pages)
    }

    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Pages(pages) => pages.as_mut_slice(),
            Self::Small(bytes) => bytes,
        }
    }
}

impl Piece {
    fn read(source: &Source, tensor: &Tensor, rows: Range<usize>) -> Result<Self> {
        let too_large = |_| {
            let what = format!("a tensor is too large: {}", Escaped(&tensor.name));
            Error::new(Kind::Unsupported, what)
        };
        let mut shape = Vec::with_capacity(tensor.shape.len());
        shape.push(i32::try_from(rows.len()).map_err(too_large)?);
        for &size in tensor.shape.iter().skip(1) {
            shape.push(i32::try_from(size).map_err(too_large)?);
        }
        let mut memory = Memory::new(rows.len() * tensor.row_bytes())?;
        source.read(tensor, rows, memory.bytes())?;
        Ok(Self {
            memory,
            shape,
            dtype: tensor.dtype,
        })
    }

    fn into_array(self, mlx: &Mlx) -> Result<Array> {
        let dtype = mlx_dtype(self.dtype)?;
        Ok(match self.memory {
            Memory::Pages(pages) => mlx.adopt(pages, &self.shape, dtype)?,
            Memory::Small(bytes) => mlx.copy(&bytes, &self.shape, dtype),
        })
    }
}

fn mlx_dtype(dtype: Dtype) -> Result<MlxDtype> {
    to_mlx_dtype(dtype).ok_or_else(|| {
        let name = dtype.name().unwrap_or_default();
        Error::new(
            Kind::Unsupported,
            format!("a type is not supported: {name}"),
        )
    })
}
