//! Anything at all is thrown at the reader: it answers with tensors or an error, without a panic
//! and without taking more memory than the header's length allows. Runs for
//! `MLXB_FUZZ_SECONDS`, two unless set.

use std::{
    env,
    time::{Duration, Instant},
};

use proptest::{
    strategy::{Strategy as _, ValueTree as _},
    test_runner::TestRunner,
};

use super::{cursor::Cursor, header::Header};
use crate::error::Kind;

/// A well-formed file's header, with values of every type.
fn seed() -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    let text = |bytes: &mut Vec<u8>, text: &str| {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    };
    let values: [(&str, u32, Vec<u8>); 9] = [
        ("general.alignment", 4, 64u32.to_le_bytes().into()),
        ("a", 0, vec![7]),
        ("b", 12, 1.5f64.to_le_bytes().into()),
        ("c", 7, vec![1]),
        ("d", 11, (-5i64).to_le_bytes().into()),
        // Arrays: two bytes, a text, an array of truth values, a float.
        (
            "e",
            9,
            [&0u32.to_le_bytes()[..], &2u64.to_le_bytes(), &[1, 2]].concat(),
        ),
        (
            "f",
            9,
            [
                &8u32.to_le_bytes()[..],
                &1u64.to_le_bytes(),
                &1u64.to_le_bytes(),
                b"x",
            ]
            .concat(),
        ),
        (
            "g",
            9,
            [
                &9u32.to_le_bytes()[..],
                &1u64.to_le_bytes(),
                &7u32.to_le_bytes(),
                &1u64.to_le_bytes(),
                &[0],
            ]
            .concat(),
        ),
        ("h", 6, 0.5f32.to_le_bytes().into()),
    ];
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(2u64.to_le_bytes());
    bytes.extend((values.len() as u64).to_le_bytes());
    for (key, kind, value) in values {
        text(&mut bytes, key);
        bytes.extend(kind.to_le_bytes());
        bytes.extend(value);
    }
    for (name, shape, kind, offset) in [("%s%n", &[64u64, 3][..], 3u32, 0u64), ("y", &[5], 0, 128)]
    {
        text(&mut bytes, name);
        bytes.extend((shape.len() as u32).to_le_bytes());
        shape
            .iter()
            .for_each(|size| bytes.extend(size.to_le_bytes()));
        bytes.extend(kind.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
    }
    bytes
}

fn read(bytes: &[u8], file_bytes: u64) -> crate::error::Result<Header> {
    Header::read(&mut Cursor::new(bytes, file_bytes))
}

/// Numbers that break things where sizes, counts or types stand.
const NUMBERS: [u64; 12] = [
    0,
    1,
    7,
    9,
    31,
    255,
    1 << 31,
    u32::MAX as u64,
    1 << 32,
    1 << 62,
    u64::MAX - 7,
    u64::MAX,
];

#[test]
fn the_seed_is_read() {
    let bytes = seed();
    let header = read(&bytes, 4096).unwrap();
    let [first, second] = &header.tensors[..] else {
        panic!("two tensors");
    };
    assert_eq!(
        (first.name.as_str(), &first.shape[..]),
        ("%s%n", &[3, 64][..])
    );
    assert_eq!(first.row_bytes(), 40);
    assert_eq!(first.begin, bytes.len().next_multiple_of(64) as u64);
    assert_eq!((second.row_bytes(), second.begin), (4, first.begin + 128));
    assert_eq!(header.metadata.integers("e").unwrap(), Some(&[1, 2][..]));
    assert_eq!(header.metadata.texts("f").unwrap().unwrap(), ["x"]);
    assert_eq!(header.metadata.number("b").unwrap(), Some(1.5));
    // Each length that is too short is an error.
    for length in 0..bytes.len() {
        assert_eq!(
            read(&bytes[..length], length as u64).unwrap_err().kind(),
            Kind::Corrupt
        );
    }
    let end = first.begin + 128 + 20;
    assert!(read(&bytes, end).is_ok());
    let error = read(&bytes, end - 1).unwrap_err();
    assert_eq!(
        error.message(),
        "file ends 1 bytes before a tensor's end: y"
    );
}

#[test]
fn whatever_stands_in_a_file_is_an_answer() {
    let seconds = env::var("MLXB_FUZZ_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(2));
    let seed = seed();
    let mut runner = TestRunner::default();
    let edit = (
        0usize..5,
        0..seed.len(),
        0..seed.len(),
        proptest::sample::select(&NUMBERS[..]),
        proptest::num::u8::ANY,
    );
    let edits = proptest::collection::vec(edit, 1..6);
    let (mut accepted, mut refused) = (0u64, 0u64);
    while Instant::now() < end {
        let mut bytes = seed.clone();
        for (way, at, other, number, byte) in edits.new_tree(&mut runner).unwrap().current() {
            let at = at.min(bytes.len().saturating_sub(8));
            match way {
                0 => bytes[at] = byte,
                1 => bytes[at..at + 8].copy_from_slice(&number.to_le_bytes()),
                2 => bytes[at..at + 4].copy_from_slice(&(number as u32).to_le_bytes()),
                3 => bytes.truncate(other.max(8)),
                _ => {
                    let part = bytes[at..(at + 24).min(bytes.len())].to_vec();
                    let other = other.min(bytes.len());
                    bytes.splice(other..other, part);
                }
            }
        }
        for file_bytes in [bytes.len() as u64, 4096, u64::MAX] {
            match read(&bytes, file_bytes) {
                Ok(header) => {
                    accepted += 1;
                    for tensor in &header.tensors {
                        let rows = tensor.shape[0] as u64;
                        let length = rows.checked_mul(tensor.row_bytes() as u64);
                        assert!(tensor.begin.checked_add(length.unwrap()).unwrap() <= file_bytes);
                    }
                }
                Err(error) => {
                    refused += 1;
                    assert!(!error.message().is_empty() && !error.message().contains('\n'));
                }
            }
        }
    }
    assert!(accepted > 0 && refused > 0, "{accepted} {refused}");
}
