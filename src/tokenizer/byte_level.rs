//! The alphabet of byte-level BPE: one printable character for each byte.
//!
//! Printable bytes of Latin-1 stand for themselves, the others are numbered from U+0100
//! in order (GPT-2's `bytes_to_unicode`).

/// The bytes that a token's characters stand for, unless one of them stands for none.
pub(super) fn bytes_of(token: &str) -> Option<Vec<u8>> {
    token.chars().map(byte_of).collect()
}

fn byte_of(character: char) -> Option<u8> {
    let code = u32::from(character);
    match code {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => u8::try_from(code).ok(),
        0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        0x121..=0x142 => u8::try_from(code - 0x121 + 0x7F).ok(),
        0x143 => Some(0xAD),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    use super::*;

    #[test]
    fn the_alphabet_covers_each_byte_once() {
        let bytes: BTreeSet<u8> = ByteLevel::alphabet()
            .into_iter()
            .map(|character| byte_of(character).expect("a character of the alphabet"))
            .collect();
        assert_eq!(bytes.len(), 256);
        assert_eq!(byte_of(' '), None);
        assert_eq!(byte_of('\u{144}'), None);
        assert_eq!(byte_of('Ġ'), Some(b' '));
        assert_eq!(byte_of('č'), Some(b'\r'));
    }
}
