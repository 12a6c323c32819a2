//! Processes that convert: killed at any moment, and how much memory they take.

use std::{
    env, fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use mlxb::{
    Event, Flow, GenerateOptions, LoadOptions, Model,
    quantize::{QuantizationMode, QuantizeOptions, quantize},
};

use crate::{
    folder::{self, assert_same_tensors, names, scratch},
    reference::{all_alike, packing},
    support::test_model,
};

const SOURCE: &str = "MLXB_TEST_QUANTIZE_SOURCE";
const TARGET: &str = "MLXB_TEST_QUANTIZE_TARGET";
const MEASURE: &str = "MLXB_TEST_QUANTIZE_MEASURE";
const ROUNDS: u64 = 50;

fn four<'a>() -> QuantizeOptions<'a> {
    QuantizeOptions::new(all_alike(packing(QuantizationMode::Affine, 4, 32)))
}

/// What a worker process does: convert, slowly and again and again, until it is killed; or once,
/// and say how much memory it took.
#[test]
fn worker() {
    let (Ok(source), Ok(target)) = (env::var(SOURCE), env::var(TARGET)) else {
        return;
    };
    let (source, target) = (Path::new(&source), Path::new(&target));
    if let Ok(file) = env::var(MEASURE) {
        quantize(source, target, four()).unwrap();
        fs::copy("/proc/self/status", file).unwrap();
        return;
    }
    loop {
        let mut slow = |_, _| {
            thread::sleep(Duration::from_millis(2));
            Flow::Continue
        };
        let mut options = four();
        options.overwrite = true;
        options.on_progress = Some(&mut slow);
        quantize(source, target, options).unwrap();
    }
}

fn start(source: &Path, target: &Path, measure: Option<&Path>) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", "processes::worker", "--nocapture"])
        .env(SOURCE, source)
        .env(TARGET, target)
        .stdout(Stdio::null());
    if let Some(file) = measure {
        command.env(MEASURE, file);
    }
    command.spawn().unwrap()
}

#[test]
fn killed_processes_leave_no_half_of_a_model() {
    let scratch = scratch("killed");
    let (source, target) = (test_model("tiny"), scratch.join("target"));
    let expected = scratch.join("expected");
    quantize(&source, &expected, four()).unwrap();
    let is_partial = |name: &String| name.starts_with(".mlxb-partial-");
    let (mut partial_count, mut whole_count) = (0, 0);
    // How long a process takes to its first model, here and now.
    let started = Instant::now();
    let mut child = start(&source, &target, None);
    while !target.exists() {
        thread::sleep(Duration::from_millis(1));
        assert!(started.elapsed() < Duration::from_secs(60));
    }
    let one = started.elapsed().as_micros() as u64;
    child.kill().unwrap();
    child.wait().unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..ROUNDS {
        if round % 3 == 0 && target.exists() {
            fs::remove_dir_all(&target).unwrap();
        }
        let mut child = start(&source, &target, None);
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(round);
        // At any moment of one conversion, or of the next.
        let wait = one / 4 + (random >> 33) % (one * 7 / 4);
        thread::sleep(Duration::from_micros(wait));
        child.kill().unwrap();
        child.wait().unwrap();

        let left = names(&scratch);
        partial_count += u32::from(left.iter().any(is_partial));
        // No more than the killed process's own.
        assert!(
            left.iter().filter(|name| is_partial(name)).count() <= 1,
            "{left:?}"
        );
        if target.exists() {
            whole_count += 1;
            assert_same_tensors(&target, &expected, "killed");
            assert_eq!(names(&target), names(&expected));
        }
    }
    assert!(
        partial_count >= 25,
        "partial folders: {partial_count} of {ROUNDS}"
    );
    assert!(
        whole_count >= 10,
        "models in place: {whole_count} of {ROUNDS}"
    );
    let mut options = four();
    options.overwrite = true;
    quantize(&source, &target, options).unwrap();
    assert_same_tensors(&target, &expected, "run again");
    assert_eq!(names(&scratch), ["expected", "target"]);
}

#[cfg(target_os = "linux")]
#[test]
fn memory_does_not_grow_with_the_model() {
    let scratch = scratch("memory");
    let (source, target) = (test_model("f32"), scratch.join("target"));
    let file = scratch.join("status");
    let status = start(&source, &target, Some(&file)).wait().unwrap();
    assert!(status.success());
    let status = fs::read_to_string(&file).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes: u64 = peak
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    let shard = fs::metadata(source.join("model.safetensors"))
        .unwrap()
        .len();
    // A half, where the whole and more would do: 1.3 times the largest file, and 200 MB.
    assert!(
        kilobytes * 1024 < shard / 2,
        "{kilobytes} kB of {shard} bytes"
    );
    assert!(folder::tensors(&target).len() > 400);
    fs::remove_dir_all(&scratch).unwrap();
}

#[test]
fn answers_go_on_beside_a_conversion() {
    let scratch = scratch("beside");
    let model = Model::load(test_model("tiny"), LoadOptions::default()).unwrap();
    let mut between = Vec::new();
    let source = test_model("f32");
    thread::scope(|scope| {
        let target = scratch.join("target");
        let conversion = scope.spawn(move || quantize(&source, &target, four()).unwrap());
        let generate = GenerateOptions {
            max_tokens: Some(8),
            ..GenerateOptions::default()
        };
        while !conversion.is_finished() {
            let mut tokens = 0;
            let prompt: Vec<u32> = (4..20).collect();
            let finished = model.generate(None, &prompt, &generate, &mut |event| {
                tokens += u32::from(matches!(event, Event::Token { .. }));
                Flow::Continue
            });
            finished.unwrap();
            between.push(tokens);
        }
    });
    assert!(
        between.len() >= 10 && between.iter().all(|&tokens| tokens == 8),
        "{between:?}"
    );
    fs::remove_dir_all(&scratch).unwrap();
}
