//! Whether values are fit for their new type. MLX would turn one number that is none into a group
//! of them, or a large one into infinity, without a word.

use crate::safetensors::Dtype;

/// What is wrong with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// Infinite, or not a number.
    NotFinite,
    /// Beyond the largest number of the new type.
    TooLarge,
}

/// Looks at `bytes`, little-endian values of type `from`, which are to become `to`. Types other
/// than floats have no flaws.
pub(super) fn flaw(bytes: &[u8], from: Dtype, to: Dtype) -> Option<Flaw> {
    // Without its sign a float's bits order as its value does, with infinity and then what is
    // not a number at the end.
    let (largest, infinity) = match from {
        Dtype::F32 => {
            let values = bytes.as_chunks::<4>().0.iter();
            let largest = values.map(|value| u32::from_le_bytes(*value) & 0x7fff_ffff);
            (largest.max()?, 0x7f80_0000)
        }
        Dtype::F16 | Dtype::BF16 => {
            let values = bytes.as_chunks::<2>().0.iter();
            let largest = values.map(|value| u16::from_le_bytes(*value) & 0x7fff);
            let infinity = if from == Dtype::F16 { 0x7c00 } else { 0x7f80 };
            (u32::from(largest.max()?), infinity)
        }
        _ => return None,
    };
    if largest >= infinity {
        return Some(Flaw::NotFinite);
    }
    (largest >= first_too_large(from, to)).then_some(Flaw::TooLarge)
}

/// Bits of the smallest value of type `from` that rounds to infinity in `to`.
fn first_too_large(from: Dtype, to: Dtype) -> u32 {
    match (from, to) {
        // Half a step beyond the largest number.
        (Dtype::F32, Dtype::F16) => 65_520f32.to_bits(),
        (Dtype::F32, Dtype::BF16) => 0x7f7f_8000,
        (Dtype::BF16, Dtype::F16) => 65_536f32.to_bits() >> 16,
        _ => u32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use proptest::prelude::*;

    use super::*;

    const FLOATS: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::BF16];

    /// The value in the type `from`, and as `to` would have it.
    fn rounded(bits: u32, from: Dtype, to: Dtype) -> (Vec<u8>, f32, f32) {
        let (bytes, value) = match from {
            Dtype::F32 => (bits.to_le_bytes().to_vec(), f32::from_bits(bits)),
            Dtype::F16 => {
                let bits = bits as u16;
                (bits.to_le_bytes().to_vec(), f16::from_bits(bits).to_f32())
            }
            _ => {
                let bits = bits as u16;
                (bits.to_le_bytes().to_vec(), bf16::from_bits(bits).to_f32())
            }
        };
        let as_new = match to {
            Dtype::F32 => value,
            Dtype::F16 => f16::from_f32(value).to_f32(),
            _ => bf16::from_f32(value).to_f32(),
        };
        (bytes, value, as_new)
    }

    fn expected(value: f32, as_new: f32) -> Option<Flaw> {
        match (value.is_finite(), as_new.is_finite()) {
            (false, _) => Some(Flaw::NotFinite),
            (true, false) => Some(Flaw::TooLarge),
            (true, true) => None,
        }
    }

    #[test]
    fn every_16_bit_value_is_judged_as_rounding_does() {
        for from in [Dtype::F16, Dtype::BF16] {
            for to in FLOATS {
                for bits in 0..=u32::from(u16::MAX) {
                    let (bytes, value, as_new) = rounded(bits, from, to);
                    let judged = flaw(&bytes, from, to);
                    assert_eq!(judged, expected(value, as_new), "{value} {from:?} {to:?}");
                }
            }
        }
    }

    #[test]
    fn other_types_and_nothing_at_all_have_no_flaws() {
        assert_eq!(flaw(&[0xff; 8], Dtype::U32, Dtype::U32), None);
        assert_eq!(flaw(&[], Dtype::F32, Dtype::F16), None);
    }

    proptest! {
        #[test]
        fn wide_values_are_judged_as_rounding_does(
            bits in prop_oneof![
                any::<u32>(),
                (0x477f_e000u32..0x4780_0002).prop_map(|bits| bits | 0x8000_0000),
                0x7f7f_0000u32..0x7f80_0002,
            ],
            to in prop::sample::select(&FLOATS[..]),
            zeros in 0usize..3,
        ) {
            let (mut bytes, value, as_new) = rounded(bits, Dtype::F32, to);
            bytes.resize(bytes.len() + 4 * zeros, 0);
            prop_assert_eq!(flaw(&bytes, Dtype::F32, to), expected(value, as_new));
        }
    }
}
