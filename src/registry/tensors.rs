//! What the headers of a model's weight files add up to.

use std::collections::HashMap;

use super::facts::Quantization;
use crate::{
    error::Result,
    safetensors::{Dtype, Shard, TensorInfo},
    snapshot::Snapshot,
};

/// Sums over all tensors that are loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tensors {
    pub(crate) bytes: u64,
    pub(crate) experts_bytes: u64,
    /// Bytes of the token embedding, of which a step reads one row.
    pub(crate) embedding_bytes: u64,
    /// Whether the output head is a tensor of its own.
    pub(crate) has_head: bool,
    /// The largest tensor, which loading holds twice.
    pub(crate) largest_bytes: u64,
    /// Bytes of an element of the floating-point tensors that are most of the weights or, packed
    /// ones, scale them: activations have that type.
    pub(crate) float_bytes: u64,
    /// `None` for packings that are not understood.
    pub(crate) parameter_count: Option<u64>,
}

impl Tensors {
    /// Reads the headers, never tensor data.
    ///
    /// # Errors
    /// As [`Shard::open`].
    pub(crate) fn read(snapshot: &Snapshot, quantization: &Quantization) -> Result<Self> {
        let shards = snapshot
            .weights()
            .iter()
            .map(|file| Shard::open(&file.path))
            .collect::<Result<Vec<_>>>()?;
        let tensors: Vec<&TensorInfo> = shards.iter().flat_map(Shard::tensors).collect();
        Ok(Self::sum(&tensors, quantization))
    }

    fn sum(tensors: &[&TensorInfo], quantization: &Quantization) -> Self {
        let by_name: HashMap<&str, &TensorInfo> = tensors
            .iter()
            .map(|tensor| (tensor.name.as_str(), *tensor))
            .collect();
        let mut sums = Self {
            parameter_count: Some(0),
            ..Self::default()
        };
        let mut floats: HashMap<u64, u64> = HashMap::new();
        for tensor in tensors {
            let (name, bytes) = (tensor.name.as_str(), tensor.byte_len());
            sums.bytes += bytes;
            sums.largest_bytes = sums.largest_bytes.max(bytes);
            if is_experts(name) {
                sums.experts_bytes += bytes;
            }
            if name.contains("embed_tokens.") || name.contains(".wte.") {
                sums.embedding_bytes += bytes;
            }
            sums.has_head |= name.contains("lm_head.");
            if matches!(tensor.dtype, Dtype::F16 | Dtype::BF16 | Dtype::F32) {
                let element = tensor.dtype.bits().unwrap_or_default() / 8;
                *floats.entry(element).or_default() += bytes;
            }
            let parameters = parameters(tensor, &by_name, quantization);
            sums.parameter_count = sums
                .parameter_count
                .zip(parameters)
                .and_then(|(sum, more)| sum.checked_add(more));
        }
        sums.float_bytes = floats
            .into_iter()
            .max_by_key(|(_, bytes)| *bytes)
            .map_or(2, |(element, _)| element);
        sums
    }
}

/// Weights of experts, of which a token uses some: under their publishers' name, or mlx-lm's for
/// stacked ones.
fn is_experts(name: &str) -> bool {
    name.contains(".experts.") || name.contains(".switch_mlp.")
}

/// Parameters that a tensor stands for: none for the scales and biases of a packed one, and
/// `None` for packings of other programs.
fn parameters(
    tensor: &TensorInfo,
    by_name: &HashMap<&str, &TensorInfo>,
    quantization: &Quantization,
) -> Option<u64> {
    let name = tensor.name.as_str();
    let beside = |from: &str, to: &str| {
        let base = name.strip_suffix(from)?;
        by_name.get(format!("{base}{to}").as_str()).copied()
    };
    let is_packed = |weight: &TensorInfo| weight.dtype == Dtype::U32;
    for scale in ["scales", "biases"] {
        if beside(scale, "weight").is_some_and(is_packed) {
            return Some(0);
        }
    }
    for scale in ["weight_scale", "weight_scale_inv", "input_scale"] {
        if beside(scale, "weight").is_some() {
            return Some(0);
        }
    }
    if [".qweight", ".qzeros", ".g_idx"]
        .iter()
        .any(|end| name.ends_with(end))
    {
        return None;
    }
    match beside("weight", "scales") {
        Some(scales) if is_packed(tensor) => {
            let columns = *tensor.shape.last()? as u64;
            let groups = *scales.shape.last()? as u64;
            let rows = tensor.element_count().checked_div(columns)?;
            let module = name.strip_suffix(".weight")?;
            let group_size = group_size(module, columns, groups, quantization)?;
            rows.checked_mul(groups)?.checked_mul(group_size)
        }
        _ => Some(tensor.element_count()),
    }
}

/// How many weights share a scale: as the config says for the module or for all; where it says
/// nothing, the usual sizes. The shapes must agree: `columns` 32-bit words hold `groups` groups
/// of whole bits a weight.
fn group_size(module: &str, columns: u64, groups: u64, quantization: &Quantization) -> Option<u64> {
    let configured = quantization
        .group_sizes
        .get(module)
        .copied()
        .or(quantization.group_size)
        .and_then(|size| u64::try_from(size).ok());
    configured
        .into_iter()
        .chain([64, 32, 128, 16])
        .find(|size| {
            let weights = groups.saturating_mul(*size);
            let bits = columns.saturating_mul(32);
            weights > 0 && bits.is_multiple_of(weights) && matches!(bits / weights, 2..=6 | 8)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::safetensors::Header;
    use std::path::Path;

    /// Lines of `name dtype shape`, the shape with `x` between its numbers.
    fn sums(lines: &[&str], quantization: &Quantization) -> Tensors {
        let mut end = 0;
        let mut header = serde_json::Map::new();
        for line in lines {
            let [name, dtype, shape] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            let shape: Vec<u64> = shape.split('x').map(|n| n.parse().unwrap()).collect();
            let begin = end;
            let bits = Dtype::from_name(dtype).bits().unwrap();
            end += shape.iter().product::<u64>() * bits / 8;
            let entry = serde_json::json!({
                "dtype": dtype, "shape": shape, "data_offsets": [begin, end],
            });
            header.insert((*name).to_owned(), entry);
        }
        let json = serde_json::Value::Object(header).to_string();
        let bytes = 8 + json.len() as u64 + end;
        let header = Header::parse(Path::new("x"), json.as_bytes(), bytes).unwrap();
        Tensors::sum(&header.tensors().iter().collect::<Vec<_>>(), quantization)
    }

    #[test]
    fn packed_weights_count_as_what_they_stand_for() {
        let affine = |group_size| Quantization {
            bits: Some(4),
            group_size: Some(group_size),
            mode: Some("affine".to_owned()),
            group_sizes: [("b".to_owned(), 32)].into(),
        };
        let plain = Quantization::default();
        for (lines, quantization, expected) in [
            (
                vec!["a.weight F32 10x10", "b.bias BF16 7"],
                &plain,
                Some(107),
            ),
            // 128 weights a row in groups of 64: 4 bits in 16 words.
            (
                vec![
                    "a.weight U32 3x16",
                    "a.scales BF16 3x2",
                    "a.biases BF16 3x2",
                    "a.bias F16 3",
                ],
                &affine(64),
                Some(3 * 128 + 3),
            ),
            // An override: 8 bits in groups of 32 where the config says 64.
            (
                vec!["b.weight U32 3x32", "b.scales F16 3x4"],
                &affine(64),
                Some(3 * 128),
            ),
            // The config says nothing.
            (
                vec!["a.weight U32 2x16", "a.scales U8 2x4"],
                &plain,
                Some(2 * 256),
            ),
            // Stacked experts.
            (
                vec![
                    "m.switch_mlp.up.weight U32 8x3x16",
                    "m.switch_mlp.up.scales F16 8x3x2",
                ],
                &affine(64),
                Some(8 * 3 * 128),
            ),
            (
                vec!["a.weight F8_E4M3 4x4", "a.weight_scale_inv F32 1x1"],
                &plain,
                Some(16),
            ),
            (vec!["a.qweight I32 4x4", "a.scales F16 1x1"], &plain, None),
            (
                vec!["a.weight U32 3x0", "a.scales F16 3x0"],
                &affine(64),
                None,
            ),
        ] {
            assert_eq!(
                sums(&lines, quantization).parameter_count,
                expected,
                "{lines:?}"
            );
        }
    }

    #[test]
    fn experts_are_summed_apart() {
        let sums = sums(
            &[
                "model.embed_tokens.weight BF16 4x2",
                "model.layers.0.mlp.experts.0.up.weight BF16 2x2",
                "model.layers.0.mlp.switch_mlp.up.weight BF16 2x2",
                "model.layers.0.mlp.shared_experts.up.weight BF16 2x2",
                "lm_head.weight F32 2x2",
            ],
            &Quantization::default(),
        );
        assert_eq!((sums.experts_bytes, sums.bytes), (16, 56));
        assert_eq!((sums.embedding_bytes, sums.largest_bytes), (16, 16));
        assert!(sums.has_head);
        assert_eq!(sums.float_bytes, 2);
    }
}
