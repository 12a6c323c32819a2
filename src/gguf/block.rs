//! The types of tensors, and what becomes of their blocks.
//!
//! A block holds 32 weights of a row with a scale, and in some types an offset. MLX's affine
//! groups of 32 are the same thing laid out otherwise: `quantum * scale + bias`, quanta not
//! negative, the first of a word in its lowest bits, scales and biases in matrices of their own.

use half::f16;

/// Weights in a block.
pub(crate) const BLOCK: usize = 32;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GgmlType {
    F32,
    F16,
    BF16,
    /// 4 bits from 0 to 15, less 8, with a scale.
    Q4_0,
    /// 4 bits with a scale and an offset.
    Q4_1,
    /// 8 bits, signed, with a scale.
    Q8_0,
    /// One that cannot be read, by its number in the file.
    Other(u32),
}

/// What of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The quanta, in words of 32 bits.
    Words,
    /// The scales, as 16-bit floats.
    Scales,
    /// The biases, as 16-bit floats.
    Biases,
}

/// Names of the types that files hold, for messages.
const NAMES: [(u32, &str); 24] = [
    (6, "Q5_0"),
    (7, "Q5_1"),
    (9, "Q8_1"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (12, "Q4_K"),
    (13, "Q5_K"),
    (14, "Q6_K"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (39, "MXFP4"),
];

impl GgmlType {
    pub(super) fn from_number(number: u32) -> Self {
        match number {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            8 => Self::Q8_0,
            30 => Self::BF16,
            other => Self::Other(other),
        }
    }

    /// What it is called.
    pub(crate) fn name(self) -> String {
        match self {
            Self::F32 => "F32".to_owned(),
            Self::F16 => "F16".to_owned(),
            Self::BF16 => "BF16".to_owned(),
            Self::Q4_0 => "Q4_0".to_owned(),
            Self::Q4_1 => "Q4_1".to_owned(),
            Self::Q8_0 => "Q8_0".to_owned(),
            Self::Other(number) => {
                let row = NAMES.iter().find(|row| row.0 == number);
                row.map_or_else(|| number.to_string(), |row| row.1.to_owned())
            }
        }
    }

    pub(super) fn is_readable(self) -> bool {
        !matches!(self, Self::Other(_))
    }

    /// Bits of a weight, of types in blocks that can be read.
    pub(crate) fn block_bits(self) -> Option<usize> {
        match self {
            Self::Q4_0 | Self::Q4_1 => Some(4),
            Self::Q8_0 => Some(8),
            _ => None,
        }
    }

    /// Bytes of a block.
    fn block_bytes(self) -> usize {
        match self {
            Self::Q4_0 => 2 + 16,
            Self::Q4_1 => 4 + 16,
            _ => 2 + 32,
        }
    }

    /// Bytes of a row of so many weights; `None` where they are no whole blocks, or cannot be
    /// read.
    pub(super) fn row_bytes(self, columns: usize) -> Option<usize> {
        match self {
            Self::F32 => columns.checked_mul(4),
            Self::F16 | Self::BF16 => columns.checked_mul(2),
            Self::Other(_) => None,
            _ if columns.is_multiple_of(BLOCK) => (columns / BLOCK).checked_mul(self.block_bytes()),
            _ => None,
        }
    }

    /// Takes a part out of whole blocks; `to` is exactly as long as what comes out.
    pub(crate) fn extract(self, blocks: &[u8], part: Part, to: &mut [u8]) {
        let blocks = blocks.chunks_exact(self.block_bytes());
        match part {
            Part::Words => {
                let bytes = self.block_bits().unwrap_or(8) * BLOCK / 8;
                for (block, to) in blocks.zip(to.chunks_exact_mut(bytes)) {
                    self.words(block, to);
                }
            }
            Part::Scales | Part::Biases => {
                for (block, to) in blocks.zip(to.chunks_exact_mut(2)) {
                    let value = match part {
                        Part::Biases => self.bias(block),
                        _ => scale(block),
                    };
                    to.copy_from_slice(&value.to_le_bytes());
                }
            }
        }
    }

    fn words(self, block: &[u8], to: &mut [u8]) {
        let quanta = &block[block.len() - to.len()..];
        if self == Self::Q8_0 {
            // From -128 .. 127 to 0 .. 255.
            for (quantum, to) in quanta.iter().zip(to) {
                *to = quantum ^ 0x80;
            }
            return;
        }
        // The lower halves of 16 bytes come first, then the upper ones.
        let (low, high) = to.split_at_mut(8);
        for (pair, to) in quanta.as_chunks::<2>().0.iter().zip(low) {
            *to = (pair[0] & 15) | (pair[1] << 4);
        }
        for (pair, to) in quanta.as_chunks::<2>().0.iter().zip(high) {
            *to = (pair[0] >> 4) | (pair[1] & 0xf0);
        }
    }

    /// What quanta counted from 0 need to mean the same. Exact, unless it becomes infinite, which
    /// is noticed where values are looked at.
    fn bias(self, block: &[u8]) -> f16 {
        match self {
            Self::Q4_0 => f16::from_f32(-8.0 * scale(block).to_f32()),
            Self::Q4_1 => f16::from_le_bytes([block[2], block[3]]),
            _ => f16::from_f32(-128.0 * scale(block).to_f32()),
        }
    }
}

fn scale(block: &[u8]) -> f16 {
    f16::from_le_bytes([block[0], block[1]])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the block means, by the format's own description.
    fn meaning(kind: GgmlType, block: &[u8]) -> Vec<f64> {
        let number = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f64();
        let scale = number(0);
        (0..BLOCK)
            .map(|index| {
                let nibble = |from: usize| {
                    let byte = block[from + index % 16];
                    f64::from(if index < 16 { byte & 15 } else { byte >> 4 })
                };
                match kind {
                    GgmlType::Q4_0 => (nibble(2) - 8.0) * scale,
                    GgmlType::Q4_1 => nibble(4) * scale + number(2),
                    _ => f64::from(block[2 + index] as i8) * scale,
                }
            })
            .collect()
    }

    /// What MLX takes the parts for.
    fn as_mlx_reads(bits: usize, words: &[u8], scale: f64, bias: f64) -> Vec<f64> {
        let words: Vec<u32> = words
            .as_chunks::<4>()
            .0
            .iter()
            .map(|word| u32::from_le_bytes(*word))
            .collect();
        let per_word = 32 / bits;
        (0..BLOCK)
            .map(|index| {
                let quantum = words[index / per_word] >> (index % per_word * bits);
                f64::from(quantum & ((1 << bits) - 1)) * scale + bias
            })
            .collect()
    }

    proptest! {
        #[test]
        fn blocks_lose_nothing(
            kind in prop::sample::select(vec![GgmlType::Q4_0, GgmlType::Q4_1, GgmlType::Q8_0]),
            quanta in prop::collection::vec(any::<u8>(), 32),
            scale in -500f32..500.0,
            offset in -500f32..500.0,
        ) {
            let mut block = f16::from_f32(scale).to_le_bytes().to_vec();
            if kind == GgmlType::Q4_1 {
                block.extend(f16::from_f32(offset).to_le_bytes());
            }
            let bits = kind.block_bits().unwrap();
            block.extend(&quanta[..4 * bits]);
            prop_assert_eq!(kind.row_bytes(BLOCK), Some(block.len()));
            let take = |part, length: usize| {
                let mut bytes = vec![0; length];
                kind.extract(&block, part, &mut bytes);
                bytes
            };
            let number = |bytes: Vec<u8>| f16::from_le_bytes([bytes[0], bytes[1]]).to_f64();
            let words = take(Part::Words, 4 * bits);
            let (scale, bias) = (number(take(Part::Scales, 2)), number(take(Part::Biases, 2)));
            prop_assert_eq!(as_mlx_reads(bits, &words, scale, bias), meaning(kind, &block));
        }
    }

    #[test]
    fn rows_are_whole_blocks() {
        for (kind, columns, bytes) in [
            (GgmlType::F32, 3, Some(12)),
            (GgmlType::BF16, 3, Some(6)),
            (GgmlType::Q4_0, 64, Some(36)),
            (GgmlType::Q4_1, 64, Some(40)),
            (GgmlType::Q8_0, 64, Some(68)),
            (GgmlType::Q8_0, 65, None),
            (GgmlType::Other(12), 256, None),
            (GgmlType::F32, usize::MAX, None),
        ] {
            assert_eq!(kind.row_bytes(columns), bytes, "{kind:?}");
        }
        assert_eq!(GgmlType::from_number(12).name(), "Q4_K");
        assert_eq!(GgmlType::from_number(77).name(), "77");
    }
}
