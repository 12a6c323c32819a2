//! Rotary position embedding and its scalings (Su et al., RoFormer; Peng et al., YaRN; the
//! llama3 scaling as published with Llama 3.1), computed as mlx-lm's `rope_utils` does.

use std::f64::consts::PI;

use mlx_rs::{Array, fast, ops};

use super::config::{Rope as RopeConfig, RopeScaling};
use crate::engine::mlx::MlxResult;

/// Rotates the first `dims` of every head by its position.
pub(crate) struct Rope {
    dims: i32,
    traditional: bool,
    base: Option<f32>,
    scale: f32,
    frequencies: Option<Array>,
    /// Multiplies the input first (YaRN's attention temperature).
    input_scale: Option<f32>,
}

impl Rope {
    pub(crate) fn new(dims: i32, config: &RopeConfig) -> MlxResult<Self> {
        let plain = Self {
            dims,
            traditional: config.traditional,
            base: Some(config.theta as f32),
            scale: 1.0,
            frequencies: None,
            input_scale: None,
        };
        Ok(match &config.scaling {
            RopeScaling::Default => plain,
            RopeScaling::Linear { factor } => Self {
                scale: (1.0 / factor) as f32,
                ..plain
            },
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_context,
            } => Self {
                base: None,
                frequencies: Some(llama3(
                    base_frequencies(dims, config.theta)?,
                    *factor,
                    *low_freq_factor,
                    *high_freq_factor,
                    *original_context,
                )?),
                ..plain
            },
            RopeScaling::Yarn(yarn) => {
                let input_scale = temperature(yarn.factor, yarn.mscale)
                    / temperature(yarn.factor, yarn.mscale_all_dim);
                Self {
                    base: None,
                    frequencies: Some(interpolate_yarn(dims, config.theta, yarn)?),
                    input_scale: (input_scale != 1.0).then_some(input_scale as f32),
                    ..plain
                }
            }
        })
    }

    /// x \[1, heads, L, head dim\] at positions `offset ..`.
    pub(crate) fn apply(&self, x: &Array, offset: usize) -> MlxResult {
        let scaled = match self.input_scale {
            Some(scale) => Some(x.multiply(like(scale, x)?)?),
            None => None,
        };
        fast::rope(
            scaled.as_ref().unwrap_or(x),
            self.dims,
            self.traditional,
            self.base,
            self.scale,
            offset as i32,
            self.frequencies.as_ref(),
        )
    }
}

/// A scalar in `x`'s type, as Python's numbers are in MLX.
fn like(scalar: f32, x: &Array) -> MlxResult {
    Array::from_f32(scalar).as_dtype(x.dtype())
}

/// `theta ^ (2i / dims)` for each pair of dimensions: \[dims / 2\], in f32.
fn base_frequencies(dims: i32, theta: f64) -> MlxResult {
    let exponents = Array::arange::<i32, f32>(0, dims, 2)?.divide(Array::from_f32(dims as f32))?;
    Array::from_f32(theta as f32).power(exponents)
}

fn llama3(
    frequencies: Array,
    factor: f64,
    low_freq_factor: f64,
    high_freq_factor: f64,
    original_context: f64,
) -> MlxResult {
    let number = |value: f64| Array::from_f32(value as f32);
    let low = number(original_context / low_freq_factor);
    let high = number(original_context / high_freq_factor);
    let wavelengths = number(2.0 * PI).multiply(&frequencies)?;
    let slowed = ops::select(
        wavelengths.gt(&low)?,
        frequencies.multiply(number(factor))?,
        &frequencies,
    )?;
    let medium = wavelengths.gt(&high)?.logical_and(wavelengths.lt(&low)?)?;
    let smooth = number(original_context)
        .divide(&wavelengths)?
        .subtract(number(low_freq_factor))?
        .divide(number(high_freq_factor - low_freq_factor))?;
    let blend = number(1.0)
        .subtract(&smooth)?
        .divide(number(factor))?
        .add(&smooth)?;
    ops::select(medium, slowed.divide(blend)?, slowed)
}

fn temperature(scale: f64, mscale: f64) -> f64 {
    if scale <= 1.0 {
        1.0
    } else {
        0.1 * mscale * scale.ln() + 1.0
    }
}

fn interpolate_yarn(dims: i32, theta: f64, yarn: &super::config::Yarn) -> MlxResult {
    let number = |value: f64| Array::from_f32(value as f32);
    let correction = |rotations: f64| {
        f64::from(dims) * (yarn.original_context / (rotations * 2.0 * PI)).ln() / (2.0 * theta.ln())
    };
    let low = correction(yarn.beta_fast).floor().max(0.0);
    let mut high = correction(yarn.beta_slow).ceil().min(f64::from(dims - 1));
    if low == high {
        high += 0.001;
    }
    let ramp = Array::arange::<i32, f32>(0, dims / 2, 1)?
        .subtract(number(low))?
        .divide(number(high - low))?;
    let ramp = ops::clip(ramp, (0.0, 1.0))?;
    let kept = number(1.0).subtract(ramp)?;
    let extrapolated = base_frequencies(dims, theta)?;
    let interpolated = number(yarn.factor).multiply(&extrapolated)?;
    let mix = interpolated
        .multiply(&kept)?
        .add(extrapolated.multiply(number(1.0).subtract(&kept)?)?)?;
    interpolated.multiply(extrapolated)?.divide(mix)
}
