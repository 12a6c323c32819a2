//! Running mlx-lm.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde::{Deserialize, Serialize};

/// What to run mlx-lm on.
#[derive(Serialize)]
pub(crate) struct Case {
    /// Names the answer's files.
    pub(crate) name: String,
    /// The model.
    pub(crate) folder: PathBuf,
    pub(crate) prompts: Vec<Prompt>,
    /// How many greedy ids to make after each prompt.
    pub(crate) tokens: usize,
}

#[derive(Clone, Serialize)]
pub(crate) struct Prompt {
    pub(crate) ids: Vec<u32>,
    /// Prompt tokens that are run at once.
    pub(crate) chunk: usize,
}

/// mlx-lm's answer to a [`Case`].
#[derive(Deserialize)]
pub(crate) struct Answer {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    /// Of the logits, as MLX names it.
    pub(crate) dtype: String,
    vocabulary: usize,
    pub(crate) prompts: Vec<PromptAnswer>,
}

#[derive(Deserialize)]
pub(crate) struct PromptAnswer {
    pub(crate) ids: Vec<u32>,
    pub(crate) chunk: usize,
    pub(crate) greedy: Vec<u32>,
    /// How far each greedy id's log-probability is above the second best.
    pub(crate) margins: Vec<f32>,
    /// Of the token after the prompt.
    #[serde(skip)]
    pub(crate) logits: Vec<f32>,
}

/// A folder of this name for the run's files, without those of earlier runs.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("parity")
        .join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("files of an earlier run can be removed");
    }
    fs::create_dir_all(&folder).expect("the build folder is writable");
    folder
}

/// Runs a script of tests/parity.
fn python(script: &str, arguments: &[&Path]) {
    let script = Path::new("tests/parity").join(script);
    let arguments = [script.as_path()]
        .into_iter()
        .chain(arguments.iter().copied());
    run("tools/python", arguments.map(Path::as_os_str));
}

/// The folder of the small real model in one of its forms.
pub(crate) fn real_model(form: &str) -> PathBuf {
    let folder = run("tools/test-model", [OsStr::new(form)]);
    folder.trim_end().into()
}

/// Runs one of the project's tools and returns what it prints.
fn run<'a>(tool: &str, arguments: impl IntoIterator<Item = &'a OsStr>) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(root.join(tool))
        .args(arguments)
        .current_dir(root)
        .output()
        .unwrap_or_else(|error| panic!("cannot run {tool}: {error}"));
    assert!(
        output.status.success(),
        "{tool} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("the tools print UTF-8")
}

/// Makes the tiny models of these names, or all of them, and returns their folders by name.
pub(crate) fn make_models(names: &[&str], scratch: &Path) -> Vec<(String, PathBuf)> {
    let folder = scratch.join("models");
    let mut arguments = vec![folder.as_path()];
    arguments.extend(names.iter().map(Path::new));
    python("make_models.py", &arguments);
    let mut models: Vec<_> = fs::read_dir(&folder)
        .expect("the script made it")
        .map(|entry| {
            let entry = entry.expect("a folder that was just made can be listed");
            (
                entry.file_name().to_string_lossy().into_owned(),
                entry.path(),
            )
        })
        .collect();
    models.sort();
    models
}

/// Has mlx-lm answer.
pub(crate) fn ask(cases: &[Case], scratch: &Path) -> Vec<Answer> {
    let (file, answers) = (scratch.join("cases.json"), scratch.join("answers"));
    let text = serde_json::to_vec(cases).expect("plain data");
    fs::write(&file, text).expect("the build folder is writable");
    python("reference.py", &[&answers, &file]);
    cases
        .iter()
        .map(|case| read(&answers, &case.name))
        .collect()
}

fn read(answers: &Path, name: &str) -> Answer {
    let file = |extension| {
        let path = answers.join(format!("{name}.{extension}"));
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let mut answer: Answer = serde_json::from_slice(&file("json")).expect("the script's own form");
    let raw = file("f32");
    let logits: Vec<f32> = raw
        .as_chunks::<4>()
        .0
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect();
    let rows = logits.chunks_exact(answer.vocabulary);
    assert_eq!(rows.len(), answer.prompts.len(), "{name}: rows of logits");
    for (prompt, row) in answer.prompts.iter_mut().zip(rows) {
        prompt.logits = row.to_vec();
    }
    answer
}
