//! Rendering a long conversation against Jinja2 as transformers uses it, in turns: one table
//! from one run. Both begin with the request's JSON as a text; ours also translates it, as a
//! request of Chat Completions.
#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Instant,
};

use mlxb::{ChatTemplate, Protocol, Tokenizer};
use serde_json::{Value, json};

const ROUNDS: usize = 15;
const MESSAGES: usize = 200;
const TOOLS: usize = 20;
const AIM_SECONDS: f64 = 0.005;

/// A template of each kind: with reasoning, with a loop for each parameter, in one line, by
/// macros. The last two look through all messages for each of them.
const TEMPLATES: [&str; 5] = [
    "Qwen-Qwen3-0.6B",
    "Qwen3-Coder",
    "meta-llama-Llama-3.2-3B-Instruct",
    "openai-gpt-oss-120b",
    "GLM-4.6",
];

fn main() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let request = folder.path().join("request.json");
    let text = conversation().to_string();
    fs::write(&request, &text).expect("the request can be written");
    let templates = templates();
    let mut theirs = Theirs::start();
    println!(
        "{MESSAGES} messages, {TOOLS} tools, {} kB of JSON",
        text.len() / 1000
    );
    println!("{:<34} |    Jinja2 |      ours", "template");
    let mut slowest = 0.0_f64;
    for name in TEMPLATES {
        let source = templates.join(format!("{name}.jinja"));
        let template = load(&source, folder.path());
        let (mut ours, mut jinja) = (Vec::new(), Vec::new());
        // The first round warms both up.
        for round in 0..=ROUNDS {
            let (seconds, length) = theirs.render(&source, &request);
            let start = Instant::now();
            let request = Protocol::ChatCompletions.to_chat(&text);
            let request = request.expect("it was written above");
            let prompt = template.render(&request).expect("the template takes it");
            let own_seconds = start.elapsed().as_secs_f64();
            assert_eq!(prompt.len(), length, "{name}");
            if round > 0 {
                jinja.push(seconds);
                ours.push(own_seconds);
            }
        }
        let (ours, jinja) = (median(&ours), median(&jinja));
        slowest = slowest.max(ours);
        println!(
            "{name:<34} | {:>6.2} ms | {:>6.2} ms {:>5.1} x",
            jinja * 1e3,
            ours * 1e3,
            jinja / ours
        );
    }
    println!(
        "{}: every template under {} ms",
        if slowest < AIM_SECONDS {
            "met"
        } else {
            "NOT MET"
        },
        AIM_SECONDS * 1e3
    );
}

/// Questions, calls of tools, their results and answers, in turn.
fn conversation() -> Value {
    let text = "The quick brown fox jumps over the lazy dog, é and 🦊 included. ".repeat(4);
    let mut messages = vec![json!({"role": "system", "content": "You are helpful."})];
    while messages.len() < MESSAGES {
        let number = messages.len();
        messages.push(match (number - 1) % 4 {
            0 => json!({"role": "user", "content": format!("{number}: {text}")}),
            1 => json!({"role": "assistant", "content": "", "tool_calls": [{"type": "function",
                "id": format!("call{number:05}"), "function": {"name": format!("tool_{}", number % TOOLS),
                    "arguments": {"query": text, "limit": number, "flags": ["a", "b"]}}}]}),
            2 => json!({"role": "tool", "tool_call_id": format!("call{:05}", number - 1),
                "name": format!("tool_{}", (number - 1) % TOOLS), "content": text}),
            _ => json!({"role": "assistant", "content": format!("{number}: {text}")}),
        });
    }
    let parameter = |kind: &str| json!({"type": kind, "description": "What it is, in a sentence."});
    let tools: Vec<Value> = (0..TOOLS)
        .map(|number| {
            json!({"type": "function", "function": {"name": format!("tool_{number}"),
                "description": "Does what its name says, which is explained here at some length.",
                "parameters": {"type": "object", "required": ["query"], "properties": {
                    "query": parameter("string"), "limit": parameter("integer"),
                    "flags": {"type": "array", "description": "Some.", "items": {"type": "string"}}}}}})
        })
        .collect();
    json!({"messages": messages, "tools": tools})
}

/// The folder of real templates, fetched when first used.
fn templates() -> PathBuf {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/chat-templates");
    let output = Command::new(tool).output().expect("the tool starts");
    let path = String::from_utf8(output.stdout).expect("a path");
    PathBuf::from(path.trim_end()).join("templates")
}

fn load(source: &Path, folder: &Path) -> ChatTemplate {
    let vocabulary = json!({"[UNK]": 0, "<s>": 1, "</s>": 2});
    let tokenizer = json!({"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": null, "truncation": null, "padding": null,
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocabulary}});
    let config = json!({"bos_token": "<s>", "eos_token": "</s>"});
    for (name, value) in [
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", config),
    ] {
        fs::write(folder.join(name), value.to_string()).expect("the folder is writable");
    }
    fs::copy(source, folder.join("chat_template.jinja")).expect("the template was fetched");
    let tokenizer = Tokenizer::load(folder).expect("it was written above");
    ChatTemplate::load(folder, &tokenizer).expect("a real template")
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// A process with transformers that renders when asked.
struct Theirs {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Theirs {
    fn start() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut process = Command::new(root.join("tools/python"))
            .arg(root.join("benches/chat/jinja.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the tool starts");
        let requests = process.stdin.take().expect("it was asked for");
        let answers = BufReader::new(process.stdout.take().expect("it was asked for"));
        Self {
            process,
            requests,
            answers,
        }
    }

    /// The seconds that a rendering took, and the bytes of its text.
    fn render(&mut self, template: &Path, request: &Path) -> (f64, usize) {
        writeln!(
            self.requests,
            "{}\t{}",
            template.display(),
            request.display()
        )
        .expect("it listens");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("it answers");
        let (seconds, length) = answer.trim_end().split_once(' ').expect("two numbers");
        (
            seconds.parse().expect("a number"),
            length.parse().expect("a number"),
        )
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        // It may have ended by itself, after an error of its own.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
