//! The real test model through the Rust API.

use std::process::Command;

use mlxb::{Event, Finish, Flow, GenerateOptions, Kv, LoadOptions, Model};

fn model() -> Model {
    let made = Command::new("tools/test-model")
        .arg("f32")
        .output()
        .expect("the script starts");
    let dir = String::from_utf8(made.stdout).expect("a path of ours is UTF-8");
    Model::load(dir.trim_end(), LoadOptions::default()).expect("the test model loads")
}

#[test]
fn the_test_model_answers_and_its_state_continues() {
    let model = model();
    let request = serde_json::json!({
        "messages": [{"role": "user", "content": "What is the capital of Japan?"}]
    });
    let prompt = model.chat_template().unwrap().render(&request).unwrap();
    let tokens = model.encode_prompt(None, &prompt).unwrap();
    let options = GenerateOptions::default();
    let kv = Kv::new(&model);
    let (mut text, mut ids) = (String::new(), Vec::new());
    let generated = model
        .generate(Some(&kv), &tokens, &options, &mut |event| {
            match event {
                Event::Text(more) => text.push_str(more),
                Event::Token { id, .. } => ids.push(id),
                _ => {}
            }
            Flow::Continue
        })
        .unwrap();
    assert_eq!(text, "The capital of Japan is Tokyo.");
    assert_eq!(generated.finish, Finish::Eos);
    assert_eq!(generated.generated_tokens, ids.len());
    let held = kv.tokens().unwrap();
    assert_eq!(held, [&tokens[..], &ids[..ids.len() - 1]].concat());

    // From the middle of the answer on, the state gives what it gave before.
    kv.trim(tokens.len() + 2).unwrap();
    let mut again = Vec::new();
    model
        .generate(Some(&kv), &ids[2..3], &options, &mut |event| {
            if let Event::Token { id, .. } = event {
                again.push(id);
            }
            Flow::Continue
        })
        .unwrap();
    assert_eq!(again, ids[3..]);
}
