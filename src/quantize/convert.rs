//! Doing what was planned: a few rows at a time, read and written here and computed on the
//! engine.

use std::{ops::Range, path::Path, thread};

use crossbeam_channel::{Receiver, Sender, bounded};
use serde_json::Value;

use super::{
    QuantizeOptions, Quantized, auxiliary, card, config,
    output::Output,
    piece::{Memory, Piece, check, check_made, compute, mlx_dtype},
    plan::{Plan, Step, Work},
    source::{Source, Tensor},
    target::Staging,
};
use crate::{
    cancel::{Cancel, Flow, cancelled},
    engine::{Engine, engine, mlx},
    error::{Error, Kind, Result},
    footprint::Need,
    memory,
    safetensors::Dtype,
    snapshot::read_json,
};

/// Bytes of memory that a piece of work may take, unless a single row takes more. Large enough
/// that handing it over costs nothing, and small enough that others wait for it no longer than
/// for a chunk of a prompt.
const PIECE_BYTES: usize = 32 << 20;

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
    let largest = pieces.max().unwrap_or(0) as u64;
    let need = Need {
        // What is read ahead: one piece waits, and another is being read.
        lasting_bytes: 2 * largest,
        step_bytes: largest,
    };
    let _admission = engine.run(move |mlx| memory::admit("the conversion", need, mlx))??;
    let mut output = Output::new(staging.dir(), &plan.outputs, options.most_shard_bytes);
    thread::scope(|scope| {
        let (sender, ahead) = bounded(1);
        scope.spawn(|| read_ahead(&source, &plan, sender));
        write(engine, &plan, ahead, &mut output, &mut options)
    })?;
    output.finish(&plan.summary)?;
    staging.publish()?;
    Ok(plan.summary)
}

/// Rows of a step's inputs, in their order.
type Inputs = Vec<Piece>;

/// Reads and checks everything, in the order of the plan, until nobody takes it any more.
fn read_ahead(source: &Source, plan: &Plan, sender: Sender<Result<Inputs>>) {
    for step in &plan.steps {
        for rows in pieces_of(step) {
            let inputs = read(source, step, rows);
            let is_over = inputs.is_err();
            if sender.send(inputs).is_err() || is_over {
                return;
            }
        }
    }
}

/// Makes the outputs from what is read ahead, and writes them.
fn write(
    engine: &Engine,
    plan: &Plan,
    ahead: Receiver<Result<Inputs>>,
    output: &mut Output<'_>,
    options: &mut QuantizeOptions<'_>,
) -> Result<()> {
    let mut done = 0;
    for step in &plan.steps {
        for _ in pieces_of(step) {
            tell(options, done, plan.input_bytes)?;
            let inputs = ahead.recv();
            let mut inputs =
                inputs.map_err(|_| Error::new(Kind::Panic, "reading the weights panicked"))??;
            done += inputs
                .iter_mut()
                .map(|piece| piece.memory.bytes().len() as u64)
                .sum::<u64>();
            let mut parts = make(engine, step, inputs)?;
            for (index, part) in parts.iter_mut().enumerate() {
                output.append(step.first_output + index, part.bytes())?;
            }
        }
    }
    tell(options, done, plan.input_bytes)
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

/// Tells how far the work is, and looks whether it is to go on.
///
/// # Errors
/// [`crate::Kind::Cancelled`].
pub(super) fn tell(options: &mut QuantizeOptions<'_>, done: u64, total: u64) -> Result<()> {
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

/// Reads rows of a step's inputs.
fn read(source: &Source, step: &Step, rows: Range<usize>) -> Result<Inputs> {
    let mut inputs = Vec::with_capacity(step.inputs.len());
    for (tensor, dtype) in &step.inputs {
        let mut piece = Piece::read(source, tensor, rows.clone())?;
        check(tensor, *dtype, piece.memory.bytes())?;
        inputs.push(piece);
    }
    Ok(inputs)
}

/// Makes rows of a step's outputs from those of its inputs.
fn make(engine: &Engine, step: &Step, inputs: Inputs) -> Result<Vec<Memory>> {
    let is_same = |(tensor, dtype): &(Tensor, Dtype)| tensor.dtype == *dtype;
    if step.work == Work::Cast && step.inputs.iter().all(is_same) {
        return Ok(inputs.into_iter().map(|piece| piece.memory).collect());
    }
    let dtypes = step.inputs.iter().map(|(_, dtype)| mlx_dtype(*dtype));
    let dtypes = dtypes.collect::<Result<Vec<_>>>()?;
    let work = step.work;
    let parts = engine.run(move |mlx| -> Result<Vec<Vec<u8>>> {
        let mut arrays = Vec::with_capacity(inputs.len());
        for (piece, dtype) in inputs.into_iter().zip(dtypes) {
            arrays.push(piece.into_array(mlx)?.as_dtype(dtype)?);
        }
        let outputs = compute(work, &arrays)?;
        Ok(outputs
            .iter()
            .map(mlx::bytes)
            .collect::<mlx::MlxResult<_>>()?)
    })??;
    if let Work::Dequantize(..) = work {
        check_made(step, &parts)?;
    }
    Ok(parts.into_iter().map(Memory::Small).collect())
}
