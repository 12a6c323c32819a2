//! What real templates print of a call is read as that call.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::*;
use crate::chat::ChatTemplate;
use crate::tokenizer::Tokenizer;
use crate::tokenizer::tests::with_bos;

/// Templates whose calls are not read, with the reason.
const NOT_READ: &[(&str, &str)] = &[
    ("Apertus-8B-Instruct", "a syntax of its own"),
    (
        "CohereForAI-c4ai-command-r-plus-tool_use",
        "marks calls with plain words only",
    ),
    (
        "GigaChat3-10B-A1.8B",
        "prints a call as a message of another role",
    ),
    ("HuggingFaceTB-SmolLM3-3B", "prints no calls"),
    ("LFM2-8B-A1B", "prints no calls"),
    ("LFM2.5-Instruct", "prints no calls"),
    ("MiniMax-M3", "a syntax of its own"),
    (
        "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
        "prints no calls",
    ),
    ("google-gemma-2-2b-it", "prints no calls"),
    ("ibm-granite-granite-3.3-2B-Instruct", "prints no calls"),
    ("llama-cpp-rwkv-world", "prints no calls"),
    ("meetkai-functionary-medium-v3.1", "a syntax of its own"),
    ("microsoft-Phi-3.5-mini-instruct", "prints no calls"),
    ("tencent-Hy3", "a syntax of its own"),
    ("upstage-Solar-Open-100B", "a syntax of its own"),
];

/// The folder of real templates.
pub(in crate::chat) fn templates() -> PathBuf {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/chat-templates");
    let output = Command::new(tool).output().expect("the tool starts");
    assert!(output.status.success(), "{output:?}");
    let path = String::from_utf8(output.stdout).expect("a path");
    PathBuf::from(path.trim_end()).join("templates")
}

fn load(path: &Path, tokenizer: &Tokenizer) -> (ChatTemplate, OutputFormat) {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::copy(path, scratch.path().join("chat_template.jinja")).unwrap();
    let template = ChatTemplate::load(scratch.path(), tokenizer).unwrap();
    let format = OutputFormat::of(&template, tokenizer);
    (template, format)
}

fn tools() -> Value {
    let tool = |name: &str, properties: Value| {
        json!({"type": "function", "function": {"name": name, "description": "Does it.",
            "parameters": {"type": "object", "properties": properties, "required": []}}})
    };
    let parameter = |kind: &str| json!({"type": kind, "description": "x"});
    json!([
        tool(
            "multiply",
            json!({"a": parameter("number"), "b": parameter("number")})
        ),
        tool(
            "search",
            json!({"query": parameter("string"), "limit": parameter("integer")})
        ),
    ])
}

/// The prompt, and what the template prints of an answer to it.
fn answer(template: &ChatTemplate, calls: &[Value]) -> Option<(String, String)> {
    let render = |messages: Value, adds_generation_prompt: bool| {
        let request = json!({"messages": messages, "tools": tools(), "functions": "", "datetime": "",
            "eos_token": "</s>", "add_generation_prompt": adds_generation_prompt});
        template.render(&request).ok()
    };
    let user = json!({"role": "user", "content": "Hi"});
    let message = json!({"role": "assistant", "content": "", "tool_calls": calls});
    let prompt = render(json!([user]), true)?;
    let whole = render(json!([user, message]), false)?;
    let common = prompt
        .bytes()
        .zip(whole.bytes())
        .take_while(|(left, right)| left == right);
    let common = whole.floor_char_boundary(common.count());
    // Where the prompt goes on otherwise, the answer begins with a whole marker.
    let open = whole[..common]
        .rfind(['<', '['])
        .filter(|at| !whole[*at..common].contains(['>', ']']));
    let at = open.unwrap_or(common);
    Some((whole[..at].to_owned(), whole[at..].to_owned()))
}

fn calls_in(format: &OutputFormat, prompt: &str, answer: &str) -> Vec<Value> {
    let tools = tools();
    let tools = tools.as_array().expect("a list");
    let mut parser = OutputParser::new(format, tools, prompt);
    let mut pieces = parser.push(answer);
    pieces.extend(parser.finish(false).0);
    let calls = pieces.into_iter().filter_map(|piece| match piece {
        Piece::ToolCall(call) => Some(json!({"name": call.name, "arguments": call.arguments})),
        Piece::Reasoning(_) | Piece::Text(_) => None,
    });
    calls.collect()
}

#[test]
fn calls_that_real_templates_print_are_read() {
    let calls = [
        json!({"name": "multiply", "arguments": {"a": 2, "b": 3.5}}),
        json!({"name": "search", "arguments": {"limit": 3, "query": "x <y> \"z\" é\n{1}"}}),
    ];
    let messages: Vec<Value> = calls
        .iter()
        .enumerate()
        .map(|(index, call)| json!({"id": format!("call0000{index}"), "type": "function", "function": call}))
        .collect();
    let tokenizer = with_bos();
    let mut read = 0;
    let mut failed = Vec::new();
    for entry in std::fs::read_dir(templates()).unwrap() {
        let path = entry.unwrap().path();
        let name = path
            .file_stem()
            .and_then(|name| name.to_str())
            .expect("a name")
            .to_owned();
        let (template, format) = load(&path, &tokenizer);
        for count in [2, 1] {
            // Some take one call at a time, some none.
            let Some((prompt, answer)) = answer(&template, &messages[..count]) else {
                continue;
            };
            // Some print the first only.
            let printed = calls[..count].iter().filter(|call| {
                let name = call["name"].as_str().expect("a name");
                name == "multiply" || answer.contains(name)
            });
            if calls_in(&format, &prompt, &answer).iter().eq(printed) {
                read += 1;
            } else {
                failed.push((name.clone(), answer));
            }
        }
    }
    let is_known = |name: &str| NOT_READ.iter().any(|(known, _)| *known == name);
    let unknown: Vec<_> = failed.iter().filter(|(name, _)| !is_known(name)).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
    let has_failed = |name: &str| failed.iter().any(|(failed, _)| failed == name);
    let stale: Vec<_> = NOT_READ
        .iter()
        .filter(|(name, _)| !has_failed(name))
        .collect();
    assert!(stale.is_empty(), "{stale:#?}");
    assert!(read >= 90, "only {read} answers");
}
