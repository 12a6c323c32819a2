//! The processes that are compared, seen from the one that compares.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    mem,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::machine::touch_free_memory;

/// The argument that makes this program the library's side.
pub(crate) const LIBRARY_SIDE: &str = "--library-side";

/// Lets a side finish what it still computes in the background.
const PAUSE: Duration = Duration::from_millis(200);

/// A line that a side reads.
#[derive(Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) prompt: Vec<u32>,
    /// How many tokens to generate.
    pub(crate) tokens: usize,
    pub(crate) way: Way,
}

/// How a request is answered.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Way {
    /// The most likely tokens, with their text.
    Text,
    /// The most likely tokens without text.
    Greedy,
    /// Tokens drawn through a chain of filters, without text.
    Sampled,
    /// Several times, at once. The library's side only.
    Together,
    /// Several times, one after another. The library's side only.
    InTurn,
}

/// The line that it answers with.
#[derive(Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) ids: Vec<u32>,
    /// From the request to the first token.
    pub(crate) first_seconds: f64,
    /// From the second token to the last: mlx-lm gives out the first one when the second is
    /// almost done.
    pub(crate) rest_seconds: f64,
}

#[derive(Clone, Copy)]
pub(crate) enum Side {
    Library,
    MlxLm,
}

impl Side {
    /// Starts a process that loads `model`.
    pub(crate) fn start(self, model: &str) -> Process {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = match self {
            Self::Library => {
                let mut this = Command::new(env::current_exe().expect("this program has a path"));
                this.arg(LIBRARY_SIDE);
                this
            }
            Self::MlxLm => {
                let mut python = Command::new(root.join("tools/python"));
                python.arg("benches/against_mlx_lm/mlx_lm_side.py");
                python
            }
        };
        touch_free_memory();
        let started = Instant::now();
        let mut child = command
            .arg(model)
            .current_dir(root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("both sides are programs of this project");
        let (input, output) = (child.stdin.take(), child.stdout.take());
        Process {
            child,
            started,
            input: input.expect("it is piped"),
            output: BufReader::new(output.expect("it is piped")),
        }
    }
}

/// A running side.
pub(crate) struct Process {
    child: Child,
    started: Instant,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn ask(&mut self, prompt: &[u32], tokens: usize) -> Answer {
        self.ask_for(Way::Text, prompt, tokens)
    }

    pub(crate) fn ask_for(&mut self, way: Way, prompt: &[u32], tokens: usize) -> Answer {
        let request = Request {
            prompt: prompt.to_vec(),
            tokens,
            way,
        };
        let request = serde_json::to_string(&request).expect("plain data");
        writeln!(self.input, "{request}").expect("a side reads until its input ends");
        let mut line = String::new();
        self.output
            .read_line(&mut line)
            .expect("a side answers each request");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in answer {line:?}"))
    }

    /// Since the start.
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Ends the process and returns the most memory that it had resident, in bytes.
    pub(crate) fn end(self) -> u64 {
        thread::sleep(PAUSE);
        drop(self.input);
        let id = libc::pid_t::try_from(self.child.id()).expect("it came as one");
        let mut status = 0;
        // SAFETY: all bytes zero are a valid rusage, which is plain numbers.
        let mut usage: libc::rusage = unsafe { mem::zeroed() };
        // SAFETY: `id` is our child and was not waited for; both pointers are to locals.
        let ended = unsafe { libc::wait4(id, &raw mut status, 0, &raw mut usage) };
        assert_eq!((ended, status), (id, 0), "a side failed");
        let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
        u64::try_from(usage.ru_maxrss).expect("sizes are positive") * unit
    }
}

/// The folder of a test model.
pub(crate) fn test_model(form: &str) -> String {
    let folder = run("tools/test-model", &[form]);
    folder.trim_end().to_owned()
}

/// The folder of the tiny test model with a vocabulary as large as any, made now.
pub(crate) fn wide_model(tiny: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wide-model");
    let folder = folder.to_str().expect("a path in UTF-8").to_owned();
    run(
        "tools/python",
        &["benches/against_mlx_lm/wide_model.py", tiny, &folder],
    );
    folder
}

/// What a program of this project prints.
fn run(program: &str, arguments: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(root.join(program))
        .args(arguments)
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .expect("it is a program of this project");
    assert!(output.status.success(), "{program} failed");
    String::from_utf8(output.stdout).expect("our programs print UTF-8")
}
