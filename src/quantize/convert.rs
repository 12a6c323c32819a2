//! Doing what was planned: a few rows at a time, read and written here and computed on the
//! engine.

use std::{ops::Range, path::Path};

use serde_json::Value;

use super::{
    QuantizeOptions, Quantized, auxiliary, card, config,
    output::Output,
    piece::{Memory, Piece, check, check_made, compute, mlx_dtype},
    plan::{Plan, Step, Work},
    source::Source,
    target::Staging,
};
use crate::{
    cancel::{Cancel, Flow, cancelled},
    engine::{Engine, engine, mlx},
    error::Result,
    footprint::Need,
    memory,
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
        check_made(step, &parts)?;
    }
    Ok(parts.into_iter().map(Memory::Small).collect())
}
