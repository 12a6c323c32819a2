//! Scanning and resolving against huggingface_hub's `scan_cache_dir`, in turns: one table from
//! one run. Ours also reads configs and the headers of weight files, which it does not.
#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::{
    fs,
    hint::black_box,
    io::{BufRead, BufReader, Write},
    os::unix::fs::symlink,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Instant,
};

use mlxb::registry::Registry;

const ROUNDS: usize = 7;
const RESOLVES: usize = 200;
/// Snapshots of a hub, two to a repository. The aims are for the second.
const SIZES: [usize; 5] = [100, 1_000, 2_000, 5_000, 10_000];
const AIMS_AT: usize = 1_000;
const AIM_FIRST_SCAN: f64 = 3.0;
const AIM_RESCAN: f64 = 10.0;
const AIM_RESOLVE_SECONDS: f64 = 0.001;

fn main() {
    let mut theirs = Theirs::start();
    println!("snapshots | scan_cache_dir |  first scan          |  rescan              |  resolve");
    let mut aims = Vec::new();
    for snapshots in SIZES {
        let times = measure(snapshots, &mut theirs);
        let scan = median(&times.theirs);
        let (first, rescan) = (median(&times.first), median(&times.rescan));
        let (exact, part) = (median(&times.exact), median(&times.part));
        println!(
            "{snapshots:>9} | {:>11.1} ms | {:>8.1} ms {:>6.1} x | {:>8.1} ms {:>6.1} x | {:.3} ms by id, {:.3} ms by part",
            scan * 1e3,
            first * 1e3,
            scan / first,
            rescan * 1e3,
            scan / rescan,
            exact * 1e3,
            part * 1e3,
        );
        if snapshots == AIMS_AT {
            aims = vec![
                (
                    "first scan at least 3 times as fast",
                    scan / first >= AIM_FIRST_SCAN,
                ),
                (
                    "rescan at least 10 times as fast",
                    scan / rescan >= AIM_RESCAN,
                ),
                ("resolve under 1 ms", exact.max(part) < AIM_RESOLVE_SECONDS),
            ];
        }
    }
    for (aim, is_met) in aims {
        println!(
            "{} at {AIMS_AT}: {aim}",
            if is_met { "met" } else { "NOT MET" }
        );
    }
}

#[derive(Default)]
struct Times {
    theirs: Vec<f64>,
    first: Vec<f64>,
    rescan: Vec<f64>,
    exact: Vec<f64>,
    part: Vec<f64>,
}

fn measure(snapshots: usize, theirs: &mut Theirs) -> Times {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let hub = folder.path().join("hub");
    make_hub(&hub, snapshots);
    let mut times = Times::default();
    // The first round warms the system's caches for both.
    for round in 0..=ROUNDS {
        let mut turn = Times::default();
        turn.theirs.push(theirs.scan(&hub, snapshots));
        let database = folder.path().join(format!("{round}.sqlite"));
        let start = Instant::now();
        let registry = Registry::open(Some(&database)).expect("the database can be made");
        let report = registry.scan(Some(&hub)).expect("the hub can be scanned");
        turn.first.push(start.elapsed().as_secs_f64());
        assert_eq!(
            (report.count, report.read, report.problems.len()),
            (snapshots, snapshots, 0)
        );
        let start = Instant::now();
        let report = registry.scan(Some(&hub)).expect("the hub can be scanned");
        turn.rescan.push(start.elapsed().as_secs_f64());
        assert_eq!((report.count, report.read), (snapshots, 0));
        let repo = snapshots / 4;
        for (query, into) in [
            (
                format!("organization/a-model-{repo:05}-4bit"),
                &mut turn.exact,
            ),
            (format!("MODEL-{repo:05}"), &mut turn.part),
        ] {
            for _ in 0..RESOLVES {
                let start = Instant::now();
                black_box(registry.resolve(&query).expect("the model is there"));
                into.push(start.elapsed().as_secs_f64());
            }
        }
        if round > 0 {
            times.theirs.append(&mut turn.theirs);
            times.first.append(&mut turn.first);
            times.rescan.append(&mut turn.rescan);
            times.exact.append(&mut turn.exact);
            times.part.append(&mut turn.part);
        }
    }
    times
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Repositories of two snapshots with four files each, as links to blobs.
fn make_hub(hub: &Path, snapshots: usize) {
    let config = r#"{
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "bos_token_id": 1,
  "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.04,
  "intermediate_size": 1536, "max_position_embeddings": 8192, "mlp_bias": false,
  "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 4,
  "num_key_value_heads": 3, "quantization": {"bits": 4, "group_size": 64},
  "rms_norm_eps": 1e-05, "rope_theta": 100000, "tie_word_embeddings": true,
  "torch_dtype": "bfloat16", "vocab_size": 49152
}"#;
    let card = format!(
        "---\nlicense: apache-2.0\nlanguage: en\n---\n# A model\n{}",
        "Words. ".repeat(200)
    );
    let tokenizer = format!("{{\"vocab\": \"{}\"}}", "x".repeat(2000));
    for number in 0..snapshots {
        let repo = hub.join(format!(
            "models--organization--a-model-{:05}-4bit",
            number / 2
        ));
        let commit = format!("{number:040x}");
        let snapshot = repo.join("snapshots").join(&commit);
        for folder in [&snapshot, &repo.join("blobs"), &repo.join("refs")] {
            fs::create_dir_all(folder).expect("a folder can be made");
        }
        fs::write(repo.join("refs/main"), &commit).expect("a ref can be written");
        for (file, name) in [
            "config.json",
            "tokenizer.json",
            "README.md",
            "model.safetensors",
        ]
        .into_iter()
        .enumerate()
        {
            let content = match name {
                "config.json" => config.as_bytes().to_vec(),
                "tokenizer.json" => tokenizer.as_bytes().to_vec(),
                "README.md" => card.as_bytes().to_vec(),
                _ => weights(),
            };
            let blob = format!("{:064x}", number * 4 + file);
            fs::write(repo.join("blobs").join(&blob), content).expect("a blob can be written");
            symlink(Path::new("../../blobs").join(blob), snapshot.join(name))
                .expect("a link can be made");
        }
    }
}

/// A file with the header of a small model: 4 layers of 9 tensors, and the data of almost
/// nothing.
fn weights() -> Vec<u8> {
    let mut entries = Vec::new();
    let mut end = 0;
    for layer in 0..4 {
        for name in [
            "input_layernorm",
            "mlp.down_proj",
            "mlp.gate_proj",
            "mlp.up_proj",
            "post_attention_layernorm",
            "self_attn.k_proj",
            "self_attn.o_proj",
            "self_attn.q_proj",
            "self_attn.v_proj",
        ] {
            entries.push(format!(
                r#""model.layers.{layer}.{name}.weight":{{"dtype":"BF16","shape":[4],"data_offsets":[{end},{}]}}"#,
                end + 8
            ));
            end += 8;
        }
    }
    let header = format!("{{{}}}", entries.join(","));
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.into_bytes());
    file.resize(file.len() + end, 0);
    file
}

/// A process with huggingface_hub that scans when asked.
struct Theirs {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Theirs {
    fn start() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut process = Command::new(root.join("tools/python"))
            .arg(root.join("benches/registry/scan_cache_dir.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("tools/python can be run");
        Self {
            requests: process.stdin.take().expect("it is piped"),
            answers: BufReader::new(process.stdout.take().expect("it is piped")),
            process,
        }
    }

    fn scan(&mut self, hub: &Path, snapshots: usize) -> f64 {
        writeln!(self.requests, "{}", hub.display()).expect("the process reads");
        let mut line = String::new();
        self.answers
            .read_line(&mut line)
            .expect("the process answers");
        let mut parts = line.split_whitespace();
        let seconds = parts.next().and_then(|part| part.parse().ok());
        let count = parts.next().and_then(|part| part.parse().ok());
        assert_eq!(count, Some(snapshots), "what it found: {line}");
        seconds.expect("it answers with seconds")
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        // It is a program of this benchmark only, and idle.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
