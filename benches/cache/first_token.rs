//! The time to the first token: cold, from memory, from disk after a restart; and what restoring
//! takes beside reading the same files.

use std::{
    env,
    fs::{self, File},
    io::Read as _,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use memmap2::MmapMut;
use mlxb::{Cache, Model};

use crate::{
    first_token, load, load_real, machine::touch_free_memory, median, open, output, python,
    test_model, tokens,
};

/// The argument that makes this program a new process with an old cache.
pub(crate) const RESTORED_SIDE: &str = "--restored-side";

const LENGTHS: [usize; 2] = [1024, 4096];
const ROUNDS: usize = 5;

pub(crate) fn table() {
    println!("time to the first token, 135M f32, ms (medians of {ROUNDS})\n");
    println!(
        "{:>7} {:>9} {:>8} {:>8} {:>14} {:>13} {:>16} {:>15}",
        "tokens",
        "cold",
        "memory",
        "disk",
        "disk, restart",
        "mlx-lm's file",
        "restart / memory",
        "restart / mlx-lm"
    );
    let model = load_real();
    let mut folders = Vec::new();
    for length in LENGTHS {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        row(&model, length, folder.path());
        folders.push((length, folder));
    }
    println!("aims: after a restart at most 1.2 times memory, and 0.7 times mlx-lm's file\n");
    println!("restoring beside positional reads of the same files into fresh memory\n");
    println!(
        "{:>7} {:>9} {:>13} {:>11} {:>7} {:>9} {:>9}",
        "tokens", "MB", "restore, ms", "reads, ms", "ratio", "state, MB", "peak, MB"
    );
    for (length, folder) in &folders {
        bandwidth(&model, *length, folder.path());
    }
    println!(
        "aims: a ratio of at least 0.8; a peak of the state, which has room to grow, and one tensor\n"
    );
}

fn row(model: &Model, length: usize, folder: &Path) {
    let mut prompt = tokens(length as u64, length);
    let cache = open(Some(folder));
    let cold = first_token(model, &prompt, Some(&cache)).0;
    let file = folder.join("mlx_lm.safetensors");
    let file = file.to_string_lossy();
    let real = test_model("f32");
    let prompt_text = join(&prompt);
    python("prompt_file.py", &["save", &real, &file, &prompt_text]);
    let mut memory = Vec::new();
    for round in 0..ROUNDS {
        prompt.push(2000 + round as u32);
        let (time, restored) = first_token(model, &prompt, Some(&cache));
        assert_eq!(restored, 0);
        memory.push(time.as_secs_f64());
    }
    prompt.truncate(length);
    cache.flush().expect("there is room");
    let mut disk = Vec::new();
    for _ in 0..ROUNDS {
        cache.clear().expect("this is no fork");
        disk.push(restored_token(model, &prompt, &cache));
    }
    drop(cache);
    let (mut restart, mut theirs) = (Vec::new(), Vec::new());
    let dir = folder.to_string_lossy();
    for _ in 0..ROUNDS {
        touch_free_memory();
        let program = env::current_exe().expect("this program has a path");
        let ours =
            output(Command::new(program).args([RESTORED_SIDE, &real, &dir, &length.to_string()]));
        restart.push(ours.parse().expect("it prints seconds"));
        touch_free_memory();
        let mlx_lm = python("prompt_file.py", &["load", &real, &file, &prompt_text]);
        theirs.push(mlx_lm.parse().expect("it prints seconds"));
    }
    let [memory, disk, restart, theirs] = [memory, disk, restart, theirs].map(median);
    println!(
        "{length:>7} {:>9.0} {:>8.1} {:>8.1} {:>14.1} {:>13.1} {:>16.2} {:>15.2}",
        cold.as_secs_f64() * 1e3,
        memory * 1e3,
        disk * 1e3,
        restart * 1e3,
        theirs * 1e3,
        restart / memory,
        restart / theirs
    );
}

/// MODEL FOLDER TOKENS: prints the seconds to the first token.
pub(crate) fn restored_side(arguments: &[String]) {
    let model = load(&arguments[0]);
    let length: usize = arguments[2].parse().expect("a number of tokens");
    let cache = open(Some(Path::new(&arguments[1])));
    let prompt = tokens(length as u64, length);
    println!("{}", restored_token(&model, &prompt, &cache));
}

/// Seconds to the token that follows `prompt` and one more, all but the last of it from disk.
fn restored_token(model: &Model, prompt: &[u32], cache: &Cache) -> f64 {
    let longer = [prompt, &[1999]].concat();
    let (time, restored) = first_token(model, &longer, Some(cache));
    let length = prompt.len();
    assert!(restored >= length, "restored {restored} of {length}");
    time.as_secs_f64()
}

fn bandwidth(model: &Model, length: usize, folder: &Path) {
    let prompt = tokens(length as u64, length);
    let files = files(folder);
    let total: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    let (mut restores, mut reads) = (Vec::new(), Vec::new());
    let cache = open(Some(folder));
    let take = || {
        let kv = cache.take(model, "", &prompt).expect("there is memory");
        kv.expect("all but the last token is there")
    };
    for _ in 0..2 * ROUNDS {
        let started = Instant::now();
        let kv = take();
        restores.push(started.elapsed().as_secs_f64());
        assert_eq!(
            kv.tokens().map(|tokens| tokens.len()).ok(),
            Some(length - 1)
        );
        drop(kv);
        let started = Instant::now();
        for (path, bytes) in &files {
            let file = File::open(path).expect("it is there");
            let mut memory = MmapMut::map_anon(*bytes as usize).expect("there is memory");
            file.read_exact_at(&mut memory, 0).expect("it is whole");
        }
        reads.push(started.elapsed().as_secs_f64());
    }
    let before = resident_bytes("VmRSS");
    reset_peak();
    let state = take().bytes().unwrap_or(0);
    let peak = resident_bytes("VmHWM").saturating_sub(before);
    let (restore, read) = (median(restores), median(reads));
    println!(
        "{length:>7} {:>9.1} {:>13.1} {:>11.1} {:>7.2} {:>9.1} {:>9.1}",
        total as f64 / 1e6,
        restore * 1e3,
        read * 1e3,
        read / restore,
        state as f64 / 1e6,
        peak as f64 / 1e6
    );
}

/// A line of what Linux says of this process's memory; 0 elsewhere.
fn resident_bytes(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse().ok());
    kilobytes.map_or(0, |kilobytes: u64| kilobytes << 10)
}

/// Has the peak begin at what is resident now.
fn reset_peak() {
    // Without it the peak shown is too high: no harm.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// The states' files, all of which are of one conversation.
fn files(folder: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().expect("it is a folder") {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.components().count() > folder.components().count()
                && path.extension().is_some_and(|end| end == "safetensors")
                && path
                    .file_name()
                    .is_some_and(|name| name != "mlx_lm.safetensors")
            {
                let mut bytes = 0;
                if let Ok(mut file) = File::open(&path) {
                    bytes = std::io::copy(&mut file.by_ref(), &mut std::io::sink())
                        .expect("it can be read");
                }
                found.push((path, bytes));
            }
        }
    }
    found
}

fn join(tokens: &[u32]) -> String {
    let numbers: Vec<String> = tokens.iter().map(u32::to_string).collect();
    numbers.join(" ")
}
