//! Llama 3's scaling of rotary frequencies, found again from the factors that llama.cpp keeps of
//! it.

use std::f64::consts::TAU;

use serde_json::{Value, json};

use super::config::unsupported;
use crate::{
    error::Result,
    escape::Escaped,
    gguf::{GgmlType, Gguf, TensorInfo},
};

/// A setting of the scaling: factor, low and high frequency factor, original context.
type Setting = (f64, f64, f64, f64);

/// The settings of Meta's models: 3.1 and 3.3, and 3.2.
const SETTINGS: [Setting; 2] = [(8.0, 1.0, 4.0, 8192.0), (32.0, 1.0, 4.0, 8192.0)];

/// How far a factor may be off, relatively: they are computed with 32 bits.
const TOLERANCE: f64 = 1e-4;

/// By what each frequency is divided (Llama 3.1's reference implementation).
fn factors((factor, low, high, context): Setting, theta: f64, dim: u64) -> Vec<f64> {
    (0..dim / 2)
        .map(|index| {
            let wavelength = TAU * theta.powf(2.0 * index as f64 / dim as f64);
            if wavelength < context / high {
                1.0
            } else if wavelength > context / low {
                factor
            } else {
                let smooth = (context / wavelength - low) / (high - low);
                1.0 / ((1.0 - smooth) / factor + smooth)
            }
        })
        .collect()
}

/// The `rope_scaling` that has these factors.
///
/// # Errors
/// [`crate::Kind::Unsupported`] when no known setting has them.
pub(super) fn of_factors(
    file: &Gguf,
    tensor: &TensorInfo,
    theta: f64,
    head_dim: u64,
) -> Result<Value> {
    let unknown = || unsupported("these factors of frequencies", Escaped(&tensor.name));
    let is_vector = tensor.shape.len() == 1 && tensor.kind == GgmlType::F32;
    if !is_vector || tensor.shape[0] as u64 != head_dim / 2 {
        return Err(unknown());
    }
    let mut bytes = vec![0; tensor.shape[0] * 4];
    file.read_rows(tensor, 0..tensor.shape[0], &mut bytes)?;
    let values = bytes.as_chunks::<4>().0.iter();
    let values: Vec<f64> = values
        .map(|value| f32::from_le_bytes(*value).into())
        .collect();
    let has = |setting: &&Setting| {
        let expected = factors(**setting, theta, head_dim);
        expected
            .iter()
            .zip(&values)
            .all(|(a, b)| (a - b).abs() <= TOLERANCE * a)
    };
    let found = SETTINGS.iter().find(has).ok_or_else(unknown)?;
    let (factor, low, high, context) = *found;
    Ok(json!({
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": context as u64,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_those_of_mlx_lm() {
        // Of initialize_rope for Llama 3.2: frequencies over those without scaling.
        let made = factors(SETTINGS[1], 500_000.0, 64);
        assert_eq!(made.len(), 32);
        for (index, made) in made.into_iter().enumerate() {
            let expected = match index {
                ..15 => 1.0,
                15 => 1.6513,
                16 => 3.2923,
                17 => 9.6667,
                _ => 32.0,
            };
            assert!((made - expected).abs() < 1e-4 * expected, "{index}: {made}");
        }
    }
}
