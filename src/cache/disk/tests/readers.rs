//! Files are plain safetensors files for others.

use std::process::Command;

use super::*;

#[test]
fn python_and_mlx_read_a_file_as_it_was_stored() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), AMPLE, true).unwrap();
    let tokens: Vec<u32> = (0..9).chain([u32::MAX]).collect();
    store(&disk, &namespace(1), &tokens[..4]).unwrap();
    let first = segment_files(folder.path()).remove(0);
    store(&disk, &namespace(1), &tokens).unwrap();
    let mut second = segment_files(folder.path());
    second.retain(|path| *path != first);
    let bytes = fs::read(&second[0]).unwrap();
    let expected = folder.path().join("expected");
    let layout = layout();
    let expected_bytes = |index| rows(&namespace(1), &layout, &tokens, index, 4..10);
    let all: Vec<u8> = (0..layout.len()).flat_map(expected_bytes).collect();
    fs::write(&expected, all).unwrap();

    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(root.join("tools/python"))
        .arg("tests/cache/read_segment.py")
        .args([&second[0], &expected])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    // What the checksums are of, as a reader without this library would find out.
    let parsed = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let header_bytes = 8 + u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    assert_eq!((header_bytes + 4 * 6) % 64, 0);
    let mut parts = vec![
        &bytes[..header_bytes],
        parsed.tensor("tokens").unwrap().data(),
    ];
    parts.extend(
        layout
            .iter()
            .map(|t| parsed.tensor(&t.name).unwrap().data()),
    );
    let checksums = parsed.tensor("checksums").unwrap();
    let expected = parts
        .into_iter()
        .flat_map(|part| xxh3_64(part).to_le_bytes());
    assert_eq!(checksums.data(), expected.collect::<Vec<u8>>());
}

/// Another form of the files needs another version, and so another folder.
#[test]
fn the_form_of_the_files_stays_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), AMPLE, true).unwrap();
    store(&disk, &namespace(1), &[1, 2, 3]).unwrap();
    store(&disk, &namespace(1), &[1, 2, 4, 5]).unwrap();
    let found = segment_files(folder.path()).into_iter().map(|path| {
        let name = path.file_stem().unwrap().to_str().unwrap()[..16].to_owned();
        (name, format!("{:016x}", xxh3_64(&fs::read(path).unwrap())))
    });
    let expected = [
        ("72d147abcc1ba97d", "38a91db2a6c5cec3"),
        ("7764bfba3b2d383b", "bb043d7bcf83b41f"),
    ];
    let expected = expected.map(|(name, hash)| (name.to_owned(), hash.to_owned()));
    assert_eq!(found.collect::<Vec<_>>(), expected);
}
