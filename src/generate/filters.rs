//! Filters over log-probabilities: each takes \[1, vocabulary\] and returns it with some entries
//! at minus infinity. The meaning and the arithmetic are those of mlx-lm's `sample_utils`, except
//! where that is known to be wrong; such places say so.

use mlx_rs::{Array, Dtype, ops, random};

use crate::engine::mlx::MlxResult;

/// Nucleus sampling (Holtzman et al. 2019): drops a token when the tokens above it alone have a
/// mass of `top_p` or more. The mass is summed from the top and in f32, so that the most likely
/// token stays however small `top_p` is.
pub(super) fn keep_top_p(log_probabilities: &Array, top_p: f32) -> MlxResult {
    let sorted = ops::sort_axis(log_probabilities, -1)?;
    let probabilities = sorted.as_dtype(Dtype::Float32)?.exp()?;
    let above = probabilities.cumsum(-1, true, false)?;
    let first = Array::from_slice(&[0_i32], &[1]);
    let total = above
        .take_axis(&first, -1)?
        .add(probabilities.take_axis(&first, -1)?)?;
    let limit = Array::from_f32(top_p).multiply(total)?;
    let dropped = above.ge(limit)?.sum_axis(-1, true)?;
    let threshold = sorted.take_along_axis(dropped, -1)?;
    drop_where(&log_probabilities.lt(threshold)?, log_probabilities)
}

/// Min-p (Nguyen et al. 2024): drops tokens less likely than `min_p` times the most likely one,
/// but keeps the `least` most likely.
pub(super) fn keep_min_p(log_probabilities: &Array, min_p: f32, least: i32) -> MlxResult {
    let top = log_probabilities.max_axis(-1, true)?;
    let offset = scalar(f64::from(min_p).ln() as f32, log_probabilities.dtype())?;
    let mut dropped = log_probabilities.lt(top.add(offset)?)?;
    let vocabulary = log_probabilities.dim(-1);
    if least > 1 {
        let least = least.min(vocabulary);
        let order = ops::argpartition_axis(log_probabilities, vocabulary - least, -1)?;
        let kept = order.take_axis(range(vocabulary - least, vocabulary)?, -1)?;
        dropped = dropped.put_along_axis(&kept, Array::from_bool(false), -1)?;
    }
    drop_where(&dropped, log_probabilities)
}

/// XTC, exclude top choices: with `probability`, drops all tokens more likely than the least
/// likely one above `threshold`, but none that is `spared` (\[vocabulary\], true or false).
pub(super) fn exclude_top_choices(
    log_probabilities: &Array,
    probability: f32,
    threshold: f32,
    spared: Option<&Array>,
    key: &Array,
) -> MlxResult {
    let probabilities = ops::softmax_axis(log_probabilities, -1, false)?;
    let dtype = probabilities.dtype();
    let above = probabilities.gt(scalar(threshold, dtype)?)?;
    let least_above =
        ops::select(&above, &probabilities, scalar(f32::INFINITY, dtype)?)?.min_axis(-1, true)?;
    let mut dropped = probabilities.gt(least_above)?;
    if let Some(spared) = spared {
        dropped = dropped.logical_and(spared.logical_not()?)?;
    }
    let draw = random::uniform::<f32, f32>(0.0, 1.0, &[][..], key)?;
    let applies = draw.le(Array::from_f32(probability))?;
    drop_where(&dropped.logical_and(applies)?, log_probabilities)
}

/// Keeps the `top_k` most likely tokens, fewer than the vocabulary has.
pub(super) fn keep_top_k(log_probabilities: &Array, top_k: i32) -> MlxResult {
    let order = ops::argpartition_axis(log_probabilities.negative()?, top_k - 1, -1)?;
    let rest = order.take_axis(range(top_k, order.dim(-1))?, -1)?;
    let nothing = scalar(f32::NEG_INFINITY, log_probabilities.dtype())?;
    log_probabilities.put_along_axis(&rest, nothing, -1)
}

/// Draws an id \[1\] at `temperature`, above 0.
pub(super) fn draw(log_probabilities: &Array, temperature: f32, key: &Array) -> MlxResult {
    let inverse = scalar(
        (1.0 / f64::from(temperature)) as f32,
        log_probabilities.dtype(),
    )?;
    random::categorical(log_probabilities.multiply(inverse)?, -1, None, key)
}

/// A scalar of type `dtype`, as Python's numbers are in MLX.
pub(super) fn scalar(value: f32, dtype: Dtype) -> MlxResult {
    Array::from_f32(value).as_dtype(dtype)
}

/// `[from, to)`.
pub(super) fn range(from: i32, to: i32) -> MlxResult {
    Array::arange::<i32, i32>(from, to, 1)
}

fn drop_where(condition: &Array, log_probabilities: &Array) -> MlxResult {
    let nothing = scalar(f32::NEG_INFINITY, log_probabilities.dtype())?;
    ops::select(condition, nothing, log_probabilities)
}
