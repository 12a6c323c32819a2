//! What the reader accepts, what it refuses and how it says so.

use std::{
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::error::{Error, Kind, Result};

/// The bytes of a file with this header, `padding` spaces after it, and `data_bytes` of data.
fn file_with(header: &str, padding: usize, data_bytes: usize) -> Vec<u8> {
    let mut bytes = ((header.len() + padding) as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend(std::iter::repeat_n(b' ', padding));
    bytes.extend((0..data_bytes).map(|index| index as u8));
    bytes
}

fn write(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    fs::write(&path, bytes).unwrap();
    (dir, path)
}

fn open(bytes: &[u8]) -> Result<Shard> {
    let (_dir, path) = write(bytes);
    Shard::open(&path)
}

/// The message for a file with this header, which must be refused.
fn refusal(header: &Value, data_bytes: usize) -> String {
    let error = open(&file_with(&header.to_string(), 0, data_bytes)).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    assert!(error.message().contains("model.safetensors: "), "{error}");
    error.message().to_owned()
}

fn tensor(dtype: &str, shape: &[u64], begin: u64, end: u64) -> Value {
    json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, end]})
}

#[test]
fn a_file_of_the_reference_crate_reads_back() {
    let values: Vec<u8> = (0..24u8).collect();
    let views = [
        ("b.weight", safetensors::Dtype::F32, vec![2, 3]),
        ("a.weight", safetensors::Dtype::BF16, vec![12]),
        ("scalar", safetensors::Dtype::U8, vec![]),
        ("empty", safetensors::Dtype::F16, vec![0, 7]),
    ]
    .map(|(name, dtype, shape)| {
        let bytes = shape.iter().product::<usize>() * dtype.bitsize() / 8;
        let view = safetensors::tensor::TensorView::new(dtype, shape, &values[..bytes]).unwrap();
        (name, view)
    });
    let metadata = [("format".to_owned(), "mlx".to_owned())].into();
    let shard = open(&safetensors::serialize(views, Some(metadata)).unwrap()).unwrap();

    assert_eq!(shard.tensors().len(), 4);
    let find = |name: &str| shard.tensors().iter().find(|t| t.name == name).unwrap();
    assert_eq!(find("b.weight").dtype, Dtype::F32);
    assert_eq!(find("b.weight").shape, [2, 3]);
    assert_eq!(find("b.weight").byte_len(), 24);
    assert_eq!(find("a.weight").element_count(), 12);
    assert_eq!(find("empty").byte_len(), 0);
    assert_eq!(find("scalar").element_count(), 1);
    assert!(find("scalar").shape.is_empty());
    for tensor in shard.tensors() {
        let mut buffer = vec![0; tensor.byte_len() as usize];
        shard.read_exact_at(tensor, &mut buffer).unwrap();
        assert_eq!(buffer, values[..buffer.len()], "{}", tensor.name);
    }
}

#[test]
fn tensors_keep_the_headers_order_and_may_lie_in_any() {
    let header = r#"{"z":{"dtype":"U8","shape":[2],"data_offsets":[2,4]},
        "__metadata__":{"a":"1"},
        "a":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"extra":[1,{"b":null}]}}"#;
    let shard = open(&file_with(header, 5, 4)).unwrap();
    let names: Vec<_> = shard.tensors().iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["z", "a"]);
    let mut buffer = [0; 2];
    shard
        .read_exact_at(&shard.tensors()[0], &mut buffer)
        .unwrap();
    assert_eq!(buffer, [2, 3]);
}

#[test]
fn a_header_longer_than_the_first_read_is_read_whole() {
    for padding in [0, 1, 4000, 4096, 100_000] {
        let header = json!({"x": tensor("U8", &[3], 0, 3)}).to_string();
        let shard = open(&file_with(&header, padding, 3)).unwrap();
        let mut buffer = [9; 3];
        shard
            .read_exact_at(&shard.tensors()[0], &mut buffer)
            .unwrap();
        assert_eq!(buffer, [0, 1, 2]);
    }
}

#[test]
fn files_without_tensors_are_valid() {
    assert!(open(&file_with("{}", 0, 0)).unwrap().tensors().is_empty());
    let shard = open(&file_with(r#"{"__metadata__":null}"#, 0, 0)).unwrap();
    assert!(shard.tensors().is_empty());
}

#[test]
fn lengths_are_checked_before_anything_is_read() {
    let sized = |length: u64| length.to_le_bytes().to_vec();
    for (bytes, complaint) in [
        (vec![], "too short for a header, bytes: 0"),
        (vec![0; 7], "too short for a header, bytes: 7"),
        (sized(1), "longer than the file of 8 bytes: 1"),
        (
            sized(u64::MAX),
            "longer than 100000000 bytes: 18446744073709551615",
        ),
        (sized(100_000_001), "longer than 100000000 bytes: 100000001"),
        // The first bytes of an AppleDouble file.
        (
            vec![0, 5, 0x16, 7, 0, 2, 0, 0],
            "longer than 100000000 bytes: 2199142139136",
        ),
        (sized(0), "header does not begin with {"),
    ] {
        let error = open(&bytes).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.message().ends_with(complaint), "{error}");
    }
}

#[test]
fn a_header_that_is_not_one_object_is_refused() {
    for header in [
        "[]",
        " {}",
        "{} {}",
        "{",
        "\u{feff}{}",
        "{\"x\":{}}",
        "{\"x\":null}",
        "{\"x\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0]}}",
        "{\"x\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1,2]}}",
        "{\"x\":{\"dtype\":\"U8\",\"shape\":[1.0],\"data_offsets\":[0,1]}}",
        "{\"x\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}",
        "{\"x\":{\"dtype\":\"U8\",\"shape\":[],\"shape\":[],\"data_offsets\":[0,1]}}",
        "{\"x\":{\"dtype\":8,\"shape\":[],\"data_offsets\":[0,1]}}",
        "{\"x\":{\"dtype\":\"U8\",\"shape\":[18446744073709551616],\"data_offsets\":[0,1]}}",
        "{\"__metadata__\":{\"a\":1}}",
        "{\"__metadata__\":{},\"__metadata__\":{}}",
    ] {
        let error = open(&file_with(header, 0, 1)).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{header}: {error}");
        if header.contains("\"x\"") {
            assert!(error.message().ends_with(": x"), "{header}: {error}");
        }
    }
    let not_utf8 = [b"{\"".as_slice(), &[0xff], b"\":{}}"].concat();
    let bytes = [&(not_utf8.len() as u64).to_le_bytes(), not_utf8.as_slice()].concat();
    assert_eq!(open(&bytes).unwrap_err().kind(), Kind::Corrupt);
    let deep = format!("{{\"x\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(
        open(&file_with(&deep, 0, 0)).unwrap_err().kind(),
        Kind::Corrupt
    );
    let flat = json!({"x": tensor("U8", &[1; 65], 0, 1)});
    assert!(refusal(&flat, 1).contains("more than 64 dimensions"));
}

/// ml-explore/mlx#3409, osaurus-ai/vmlx-swift#217: what a header claims must agree with the file.
#[test]
fn ranges_that_do_not_fit_the_file_are_refused() {
    let max = u64::MAX;
    for (header, data_bytes, complaint) in [
        (
            json!({"t": tensor("F32", &[2], 0, 8)}),
            7,
            "file ends 1 bytes before a tensor's end: t",
        ),
        (
            json!({"t": tensor("F32", &[2], 0, 8)}),
            0,
            "file ends 8 bytes before a tensor's end: t",
        ),
        (
            json!({"t": tensor("F32", &[2], 0, 8)}),
            9,
            "belong to no tensor: 1",
        ),
        (json!({}), 3, "belong to no tensor: 3"),
        (
            json!({"t": tensor("U8", &[2], 3, 1)}),
            4,
            "ends before it begins, 3..1: t",
        ),
        (
            json!({"t": tensor("U8", &[1], max - 1, max)}),
            4,
            "before a tensor's end: t",
        ),
        (
            json!({"t": tensor("U8", &[max / 8], 0, max / 8)}),
            4,
            "before a tensor's end: t",
        ),
        (
            json!({"a": tensor("U8", &[4], 0, 4), "b": tensor("U8", &[4], 2, 6)}),
            6,
            "overlaps the one before it: b",
        ),
        (
            json!({"a": tensor("U8", &[4], 0, 4), "b": tensor("U8", &[4], 0, 4)}),
            4,
            "overlaps the one before it: b",
        ),
        (
            json!({"a": tensor("U8", &[4], 0, 4), "b": tensor("U8", &[0], 2, 2)}),
            4,
            "overlaps the one before it: b",
        ),
        (
            json!({"a": tensor("U8", &[4], 0, 4), "b": tensor("U8", &[2], 6, 8)}),
            8,
            "2 bytes belong to no tensor, before: b",
        ),
        (
            json!({"a": tensor("U8", &[4], 1, 5)}),
            5,
            "1 bytes belong to no tensor, before: a",
        ),
    ] {
        let message = refusal(&header, data_bytes);
        assert!(message.ends_with(complaint), "{header}: {message}");
    }
}

#[test]
fn a_shape_must_agree_with_type_and_range() {
    let half = 1u64 << 63;
    for (entry, complaint) in [
        (
            tensor("F32", &[2], 0, 4),
            "4 bytes does not match F32 [2]: t",
        ),
        (
            tensor("F16", &[2], 0, 8),
            "8 bytes does not match F16 [2]: t",
        ),
        (tensor("F4", &[3], 0, 2), "2 bytes does not match F4 [3]: t"),
        (tensor("F32", &[], 0, 8), "8 bytes does not match F32 []: t"),
        (tensor("U8", &[half, 2], 0, 8), "shape overflows: t"),
        (tensor("F32", &[half], 0, 8), "shape overflows: t"),
        (tensor("FUTURE", &[half, 4], 0, 8), "shape overflows: t"),
    ] {
        let data_bytes = entry["data_offsets"][1].as_u64().unwrap() as usize;
        let message = refusal(&json!({ "t": entry }), data_bytes);
        assert!(message.ends_with(complaint), "{message}");
    }
}

#[test]
fn a_name_that_stands_twice_is_refused() {
    let entry = |begin| tensor("U8", &[1], begin, begin + 1);
    let header = format!(
        "{{\"a\":{},\"b\":{},\"\\u0061\":{}}}",
        entry(0),
        entry(1),
        entry(2)
    );
    let error = open(&file_with(&header, 0, 3)).unwrap_err();
    assert!(
        error.message().ends_with("tensor stands twice: a"),
        "{error}"
    );
}

#[test]
fn unknown_types_are_listed_and_refused_only_when_read() {
    let header = json!({
        "four": tensor("F4", &[4], 0, 2),
        "future\n%s%n": tensor("Q3%n\n", &[7], 2, 5),
        "known": tensor("U8", &[1], 5, 6),
    });
    let shard = open(&file_with(&header.to_string(), 0, 6)).unwrap();
    let [four, future, known] = shard.tensors() else {
        panic!("three tensors")
    };
    assert_eq!((four.dtype, four.byte_len()), (Dtype::F4, 2));
    assert_eq!(
        (future.dtype, future.dtype_name()),
        (Dtype::Unknown, "Q3%n\n")
    );
    for (tensor, complaint) in [
        (four, "model.safetensors: unsupported dtype F4: four"),
        (
            future,
            "model.safetensors: unsupported dtype Q3%n\\n: future\\n%s%n",
        ),
    ] {
        let mut buffer = vec![0; tensor.byte_len() as usize];
        let error = shard.read_exact_at(tensor, &mut buffer).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
        assert!(error.message().ends_with(complaint), "{error}");
    }
    shard.read_exact_at(known, &mut [0]).unwrap();
}

#[test]
fn a_buffer_of_another_length_is_refused() {
    let header = json!({"t": tensor("U8", &[4], 0, 4)}).to_string();
    let shard = open(&file_with(&header, 0, 4)).unwrap();
    for length in [0, 3, 5] {
        let error = shard
            .read_exact_at(&shard.tensors()[0], &mut vec![0; length])
            .unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidArgument);
    }
}

/// A mapped or lazily read file would give zeros or end the process here.
#[test]
fn a_shard_truncated_after_opening_is_named() {
    let header = json!({"first": tensor("U8", &[4], 0, 4), "last%s%n": tensor("U8", &[4], 4, 8)});
    let (_dir, path) = write(&file_with(&header.to_string(), 0, 8));
    let shard = Shard::open(&path).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(shard.tensors()[1].end - 3).unwrap();
    let mut buffer = [0; 4];
    shard
        .read_exact_at(&shard.tensors()[0], &mut buffer)
        .unwrap();
    let error = shard
        .read_exact_at(&shard.tensors()[1], &mut buffer)
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    let expected = format!(
        "{}: file has become shorter, 3 bytes missing of tensor: last%s%n",
        path.display()
    );
    assert_eq!(error.message(), expected);
}

#[test]
fn opening_reads_no_tensor_data() {
    // 40 GB that are nowhere on the disk: reading any of it would be noticed.
    let header = json!({"t": tensor("U8", &[40_000_000_000], 0, 40_000_000_000)}).to_string();
    let (_dir, path) = write(&file_with(&header, 0, 0));
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(8 + header.len() as u64 + 40_000_000_000)
        .unwrap();
    let shard = Shard::open(&path).unwrap();
    assert_eq!(shard.tensors()[0].byte_len(), 40_000_000_000);
}

#[test]
fn links_are_followed_and_folders_refused() {
    let (dir, path) = write(&file_with("{}", 0, 0));
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(Shard::open(&link).is_ok());
    assert_eq!(
        Shard::open(dir.path()).unwrap_err().kind(),
        Kind::ModelFormat
    );
    fs::remove_file(&path).unwrap();
    assert_eq!(Shard::open(&link).unwrap_err().kind(), Kind::NotFound);
}

/// Parses a whole file's bytes the way [`Shard::open`] does.
fn parse(bytes: &[u8]) -> Result<Header, Error> {
    let path = Path::new("fuzz.safetensors");
    let length = Header::check_length(path, bytes, bytes.len() as u64)? as usize;
    Header::parse(path, &bytes[8..8 + length], bytes.len() as u64)
}

fn valid_file() -> impl Strategy<Value = Vec<u8>> {
    let dtype = prop::sample::select(vec!["U8", "BF16", "F32", "I64", "F4", "FUTURE"]);
    let shape = prop::collection::vec(0..5u64, 0..4);
    let tensors = prop::collection::vec(("[a-c.%\\n]{0,6}", dtype, shape), 0..6);
    (tensors, 0..9usize).prop_map(|(tensors, padding)| {
        let mut entries = serde_json::Map::new();
        let mut end = 0;
        for (name, dtype, mut shape) in tensors {
            if dtype == "F4" {
                shape.push(2);
            }
            if entries.contains_key(&name) {
                continue;
            }
            let bits = Dtype::from_name(dtype).bits().unwrap_or(8);
            let begin = end;
            end += shape.iter().product::<u64>() * bits / 8;
            entries.insert(name, tensor(dtype, &shape, begin, end));
        }
        file_with(&Value::Object(entries).to_string(), padding, end as usize)
    })
}

/// What a change to a valid file may be.
#[derive(Clone, Debug)]
enum Mutation {
    Set(prop::sample::Index, u8),
    Digit(prop::sample::Index, u8),
    Remove(prop::sample::Index),
    Insert(prop::sample::Index, u8),
    Truncate(prop::sample::Index),
    Length(u64),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        1 => (at(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        4 => (at(), b'0'..=b'9').prop_map(|(at, digit)| Mutation::Digit(at, digit)),
        1 => at().prop_map(Mutation::Remove),
        1 => (at(), prop::sample::select(b"0123456789{}[],:\"- \\".to_vec()))
            .prop_map(|(at, byte)| Mutation::Insert(at, byte)),
        1 => at().prop_map(Mutation::Truncate),
        1 => prop_oneof![0..300u64, any::<u64>()].prop_map(Mutation::Length),
    ]
}

fn mutate(bytes: &mut Vec<u8>, mutation: Mutation) {
    match mutation {
        _ if bytes.is_empty() => {}
        Mutation::Set(at, byte) => {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        Mutation::Digit(at, digit) => {
            let digits: Vec<_> = (0..bytes.len())
                .filter(|&i| bytes[i].is_ascii_digit())
                .collect();
            if !digits.is_empty() {
                bytes[digits[at.index(digits.len())]] = digit;
            }
        }
        Mutation::Remove(at) => {
            bytes.remove(at.index(bytes.len()));
        }
        Mutation::Insert(at, byte) => bytes.insert(at.index(bytes.len()), byte),
        Mutation::Truncate(at) => bytes.truncate(at.index(bytes.len())),
        Mutation::Length(length) => {
            let length = length.to_le_bytes();
            let kept = bytes.len().min(8);
            bytes[..kept].copy_from_slice(&length[..kept]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn valid_files_are_accepted(bytes in valid_file()) {
        prop_assert!(parse(&bytes).is_ok());
    }

    #[test]
    fn no_file_makes_the_parser_panic_or_leave_the_file(
        mut bytes in valid_file(),
        mutations in prop::collection::vec(mutation(), 1..4),
    ) {
        for mutation in mutations {
            mutate(&mut bytes, mutation);
        }
        let reference = safetensors::SafeTensors::read_metadata(&bytes);
        match parse(&bytes) {
            Ok(header) => {
                let data_begin = 8 + u64::from_le_bytes(*bytes.first_chunk().unwrap());
                let mut covered = 0;
                for tensor in header.tensors() {
                    prop_assert!(data_begin <= tensor.begin);
                    prop_assert!(tensor.begin <= tensor.end);
                    prop_assert!(tensor.end <= bytes.len() as u64);
                    covered += tensor.byte_len();
                }
                prop_assert_eq!(covered, bytes.len() as u64 - data_begin);
                // Nothing passes that the reference refuses, but for types that it has not.
                let is_known = |t: &TensorInfo| t.dtype != Dtype::Unknown;
                if header.tensors().iter().all(is_known) {
                    prop_assert!(reference.is_ok(), "{:?}", reference);
                }
            }
            Err(error) => {
                prop_assert!(!error.message().contains(['\n', '\0']));
                // Stricter than the reference only where a name stands twice or spaces lead.
                if reference.is_ok() {
                    let message = error.message();
                    prop_assert!(
                        message.contains("twice") || message.contains("begin with"),
                        "{}", message
                    );
                }
            }
        }
    }
}
