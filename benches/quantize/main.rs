//! Conversion against mlx-lm's, on the same MLX: one table from one run.
//!
//! Each conversion is a process of its own: this program again for the library,
//! `mlx_lm_side.py` for mlx-lm. The two take turns, so that a busy machine slows both alike; the
//! table holds medians.
#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::{
    env, fs,
    io::Read as _,
    mem,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use mlxb::quantize::{
    Matrices, Packings, QuantizationMode, QuantizationParameters, QuantizeOptions, Recipe, quantize,
};

/// The argument that makes this program the library's side.
const LIBRARY_SIDE: &str = "--library-side";

const ROUNDS: usize = 3;

/// What is made of SmolLM2-135M in f32: bits, or a recipe.
const RECIPES: [&str; 3] = ["4", "8", "mixed_3_6"];

/// One conversion.
struct Run {
    /// Of the conversion itself.
    seconds: f64,
    /// Of the process, from its start to its end.
    process_seconds: f64,
    peak_bytes: u64,
}

/// Converts, and prints the seconds that it took.
fn library_side(source: &Path, target: &Path, recipe: &str) {
    let bits = recipe.parse().unwrap_or(4);
    let default = QuantizationParameters::new(QuantizationMode::Affine, bits, 64);
    let options = QuantizeOptions::new(Matrices::Quantize(Packings {
        default: default.expect("MLX has 4 and 8 bits"),
        recipe: Recipe::from_name(recipe),
        modules: Vec::new(),
    }));
    let started = Instant::now();
    quantize(source, target, options).expect("the test model can be converted");
    println!("{}", started.elapsed().as_secs_f64());
}

fn side(is_library: bool) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = if is_library {
        let mut this = Command::new(env::current_exe().expect("this program has a path"));
        this.arg(LIBRARY_SIDE);
        this
    } else {
        let mut python = Command::new(root.join("tools/python"));
        python.arg("benches/quantize/mlx_lm_side.py");
        python
    };
    command.current_dir(root);
    command
}

#[expect(
    clippy::zombie_processes,
    reason = "wait4 waits for it, and tells what it took"
)]
fn run(is_library: bool, source: &Path, recipe: &str) -> Run {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench-quantize");
    if target.exists() {
        fs::remove_dir_all(&target).expect("files of an earlier run can be removed");
    }
    let started = Instant::now();
    let mut child = side(is_library)
        .args([source, &target])
        .arg(recipe)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("both sides are programs of this project");
    let mut output = String::new();
    let mut pipe = child.stdout.take().expect("it is piped");
    pipe.read_to_string(&mut output)
        .expect("a side prints a number");
    let id = libc::pid_t::try_from(child.id()).expect("it came as one");
    let mut status = 0;
    // SAFETY: all bytes zero are a valid rusage, which is plain numbers.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: `id` is our child and was not waited for; both pointers are to locals.
    let ended = unsafe { libc::wait4(id, &raw mut status, 0, &raw mut usage) };
    assert_eq!((ended, status), (id, 0), "a side failed");
    let process_seconds = started.elapsed().as_secs_f64();
    fs::remove_dir_all(&target).expect("a side made it");
    let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
    Run {
        seconds: output.trim().parse().expect("a side prints a number"),
        process_seconds,
        peak_bytes: u64::try_from(usage.ru_maxrss).expect("sizes are positive") * unit,
    }
}

fn median(runs: &[Run], number: impl Fn(&Run) -> f64) -> f64 {
    let mut numbers: Vec<f64> = runs.iter().map(number).collect();
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn compare() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = Command::new(root.join("tools/test-model"))
        .arg("f32")
        .output();
    let made = made.expect("it is a program of this project");
    assert!(made.status.success(), "there is no test model");
    let source = String::from_utf8(made.stdout).expect("our programs print UTF-8");
    let source = Path::new(source.trim());
    println!(
        "medians of {ROUNDS} interleaved rounds, 135M f32, mlx-lm as shipped on the same libmlx"
    );
    println!();
    println!("| conversion | unit | libmlxb | mlx-lm | ratio | aim | |");
    println!("|---|---|---:|---:|---:|---|---|");
    for recipe in RECIPES {
        // The first fills the system's file cache.
        run(true, source, recipe);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(run(true, source, recipe));
            theirs.push(run(false, source, recipe));
        }
        let row = |what: &str, unit: &str, number: &dyn Fn(&Run) -> f64| {
            let (ours, theirs) = (median(&ours, number), median(&theirs, number));
            let ratio = ours / theirs;
            let verdict = if ratio <= 1.0 { "met" } else { "missed" };
            println!(
                "| {recipe}: {what} | {unit} | {ours:.2} | {theirs:.2} | {ratio:.2} | <= 1.0 | {verdict} |"
            );
        };
        row("conversion alone", "s", &|run| run.seconds);
        row("whole process", "s", &|run| run.process_seconds);
        row("peak memory", "MB", &|run| run.peak_bytes as f64 / 1e6);
    }
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [LIBRARY_SIDE, source, target, recipe] => {
            library_side(Path::new(source), Path::new(target), recipe);
        }
        _ => compare(),
    }
}
