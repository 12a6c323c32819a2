//! The prompt cache: look-ups, restores and first tokens, beside mlx-lm's in the same run.
#![expect(clippy::print_stdout, reason = "a program that prints tables")]

mod first_token;
mod index;
#[path = "../machine/mod.rs"]
mod machine;
mod meanwhile;
// The library's own files, of which a part is measured.
#[path = "../../src/cache/namespace.rs"]
mod namespace;
#[path = "../../src/cache/shelf.rs"]
#[allow(dead_code, unused_imports, reason = "a part of it is measured")]
mod shelf;
#[path = "../../src/cache/tree.rs"]
#[allow(dead_code, unused_imports, reason = "a part of it is measured")]
mod tree;

use std::{
    env,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use mlxb::{
    Cache, CacheOptions, CacheUse, DiskOptions, Event, Flow, GenerateOptions, LoadOptions, Model,
};

fn main() {
    let arguments: Vec<String> = env::args().collect();
    if let Some(position) = arguments
        .iter()
        .position(|a| a == first_token::RESTORED_SIDE)
    {
        first_token::restored_side(&arguments[position + 1..]);
        return;
    }
    if arguments.iter().any(|a| a == machine::TOUCHING_SIDE) {
        machine::touching_side();
        return;
    }
    // All tables, or those that are named.
    let asked = |name: &str| {
        let mut names = arguments[1..].iter().filter(|a| !a.starts_with("--"));
        names.clone().next().is_none() || names.any(|asked| asked == name)
    };
    let tables: [(&str, fn()); 3] = [
        ("index", index::table),
        ("first-token", first_token::table),
        ("meanwhile", meanwhile::table),
    ];
    for (name, table) in tables {
        if asked(name) {
            table();
        }
    }
}

fn load_real() -> Model {
    load(&test_model("f32"))
}

fn load(dir: &str) -> Model {
    Model::load(dir, LoadOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn test_model(form: &str) -> String {
    output(Command::new(root().join("tools/test-model")).arg(form))
}

/// What mlx-lm's side prints.
fn python(script: &str, arguments: &[&str]) -> String {
    let script = root().join("benches/cache").join(script);
    output(
        Command::new(root().join("tools/python"))
            .arg(script)
            .args(arguments),
    )
}

fn output(command: &mut Command) -> String {
    let output = command
        .current_dir(root())
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// With 16 GiB on disk where there is a folder.
fn open(dir: Option<&Path>) -> Cache {
    let options = CacheOptions {
        disk: dir.map(|dir| DiskOptions {
            idle_after: None,
            ..DiskOptions::new(dir)
        }),
        ..CacheOptions::default()
    };
    Cache::open(options).unwrap_or_else(|error| panic!("{error}"))
}

fn options(max_tokens: u64, cache: Option<&Cache>) -> GenerateOptions {
    GenerateOptions {
        max_tokens: Some(max_tokens),
        cache: cache.map(|cache| CacheUse {
            cache: cache.clone(),
            namespace: String::new(),
        }),
        ..GenerateOptions::default()
    }
}

/// From the request to its first token, and how many tokens of the prompt came from disk.
fn first_token(model: &Model, prompt: &[u32], cache: Option<&Cache>) -> (Duration, usize) {
    let started = Instant::now();
    let mut first = None;
    let generated = model
        .generate(None, prompt, &options(1, cache), &mut |event| {
            if matches!(event, Event::Token { .. }) {
                first.get_or_insert_with(|| started.elapsed());
            }
            Flow::Continue
        })
        .unwrap_or_else(|error| panic!("{error}"));
    (
        first.expect("there is one token"),
        generated.restored_tokens,
    )
}

/// Tokens that a seed decides, none of them special.
fn tokens(seed: u64, count: usize) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        1000 + (state % 40_000) as u32
    };
    std::iter::repeat_with(next).take(count).collect()
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
