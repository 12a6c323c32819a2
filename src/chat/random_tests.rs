//! Mutated texts for the parsers of answers and the template engine.
//!
//! A run takes a second for each; `MLXB_FUZZ_SECONDS` makes it longer, and other each time.

use std::time::{Duration, Instant};

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::{Value, json};

use super::output::{OutputFormat, OutputParser, Piece};
use super::template::ChatTemplate;
use super::tests::CLOCK;
use crate::error::Kind;
use crate::tokenizer::tests::with_bos;

/// A source of random choices that ends after some time.
struct Choices {
    rng: TestRng,
    deadline: Instant,
}

impl Choices {
    fn new() -> Self {
        let given = std::env::var("MLXB_FUZZ_SECONDS").ok();
        let seconds = given.as_ref().map_or(Ok(1), |text| text.parse());
        let mut seed = [7; 32];
        if given.is_some() {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let nanoseconds = now.expect("after 1970").as_nanos().to_le_bytes();
            seed[..16].copy_from_slice(&nanoseconds);
        }
        Self {
            rng: TestRng::from_seed(RngAlgorithm::ChaCha, &seed),
            deadline: Instant::now() + Duration::from_secs(seconds.expect("a number of seconds")),
        }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// A number below `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize {
        self.rng.next_u32() as usize % limit
    }

    fn one<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.below(items.len())]
    }

    /// A place between two characters.
    fn place(&mut self, text: &str) -> usize {
        text.floor_char_boundary(self.below(text.len() + 1))
    }

    fn range(&mut self, text: &str) -> std::ops::Range<usize> {
        let (left, right) = (self.place(text), self.place(text));
        left.min(right)..left.max(right)
    }

    /// One of the seeds after some changes.
    fn mutated(&mut self, seeds: &[&str], words: &[&str]) -> String {
        /// Larger texts only take longer.
        const LONGEST: usize = 20_000;
        let mut text = self.one(seeds).to_owned();
        for _ in 0..=self.below(6) {
            let at = self.place(&text);
            match self.below(6) {
                0 => text.insert_str(at, self.one(words)),
                1 => {
                    let range = self.range(&text);
                    text.replace_range(range, "");
                }
                2 => {
                    let repeated = text[self.range(&text)].to_owned();
                    text.insert_str(at, &repeated);
                }
                3 => {
                    let other = self.one(seeds);
                    let range = self.range(other);
                    text.insert_str(at, &other[range]);
                }
                4 => text.truncate(at),
                _ => {
                    let range = self.range(&text);
                    text.replace_range(range, self.one(words));
                }
            }
        }
        text.truncate(text.floor_char_boundary(LONGEST));
        text
    }
}

/// The pieces of a text that arrives in these parts, with those of one kind joined.
fn pieces<'a>(
    format: &OutputFormat,
    tools: &[Value],
    prompt: &str,
    parts: impl IntoIterator<Item = &'a str>,
    is_cut: bool,
) -> Vec<Piece> {
    let mut parser = OutputParser::new(format, tools, prompt);
    let mut all: Vec<Piece> = parts
        .into_iter()
        .flat_map(|part| parser.push(part))
        .collect();
    all.extend(parser.finish(is_cut).0);
    let mut joined: Vec<Piece> = Vec::new();
    for piece in all {
        match (joined.last_mut(), piece) {
            (Some(Piece::Text(text)), Piece::Text(more))
            | (Some(Piece::Reasoning(text)), Piece::Reasoning(more)) => text.push_str(&more),
            (_, piece) => joined.push(piece),
        }
    }
    joined
}

/// However an answer arrives, it is taken apart in the same way; and one without a call and
/// without reasoning is its own text.
#[test]
fn mangled_answers_are_taken_apart_alike() {
    let answers = super::output::tests::ANSWERS;
    let tools = super::output::tests::tools();
    let seeds: Vec<&str> = answers.iter().map(|(_, answer)| *answer).collect();
    let words = [
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<function=",
        "</function>",
        "</parameter>",
        "\n",
        " ",
        "{",
        "}",
        "[",
        "]",
        "\"",
        "'",
        "\\",
        "\\u12",
        "é",
        "🦊",
        "<|",
        "|>",
        "<",
        ">",
        "ping",
        "1e5",
        ":",
        ",",
        "[TOOL_CALLS]",
        "[ARGS]",
        "<![CDATA[",
        "]]>",
        "{\"name\": \"ping\"}",
        "<|message|>",
        "<|end|>",
        "null",
    ];
    let mut choices = Choices::new();
    let mut tried = 0_usize;
    while !choices.is_over() || tried < 10 {
        let (name, own) = answers[choices.below(answers.len())];
        let reasons = choices.below(2) == 0 && name != "harmony";
        let name = if reasons {
            format!("{name}+think")
        } else {
            name.to_owned()
        };
        let format = OutputFormat::by_name(&name).expect("the name of a family");
        let seeds = if choices.below(2) == 0 {
            &[own][..]
        } else {
            &seeds[..]
        };
        let text = choices.mutated(seeds, &words);
        let is_cut = choices.below(2) == 0;
        let prompt = match choices.below(3) {
            0 => format.tool_call_opening(choices.one(&[&None, &Some("ping")]).as_deref()),
            1 => Some("<think>\n".to_owned()),
            _ => None,
        };
        let prompt = prompt.unwrap_or_default();
        let whole = pieces(&format, &tools, &prompt, [text.as_str()], is_cut);
        let mut cuts: Vec<usize> = (0..choices.below(8))
            .map(|_| choices.place(&text))
            .collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let parts = cuts.windows(2).map(|ends| &text[ends[0]..ends[1]]);
        let divided = pieces(&format, &tools, &prompt, parts, is_cut);
        assert_eq!(
            divided, whole,
            "{name}, {prompt:?}, {cuts:?}, {is_cut}: {text:?}"
        );
        let is_plain = !reasons && !["harmony", "kimi_k3"].contains(&name.as_str());
        if is_plain && let [Piece::Text(given)] = whole.as_slice() {
            assert_eq!(*given, text, "{name}, {prompt:?}, {is_cut}");
        }
        tried += 1;
    }
}

#[test]
fn mangled_templates_end_with_a_text_or_an_error() {
    let folder = super::output::real_templates::templates();
    let files = std::fs::read_dir(folder).expect("a folder");
    let sources: Vec<String> = files
        .map(|file| std::fs::read_to_string(file.expect("readable").path()).expect("utf-8"))
        .collect();
    let seeds: Vec<&str> = sources.iter().map(String::as_str).collect();
    let words = [
        "{%",
        "%}",
        "{{",
        "}}",
        "{%-",
        "-%}",
        "{#",
        "#}",
        "{% raw %}",
        "{% endraw %}",
        "{% endif %}",
        "{% endfor %}",
        "{% for m in messages %}",
        "{% set ns.x = ns %}",
        "{% set ns = namespace(x=[]) %}",
        "{{ ns }}",
        "{% set ns.x = [ns.x] %}",
        "{% generation %}",
        "{% break %}",
        " | tojson(indent=4)",
        " | length",
        "[::-1]",
        ".split('\n')",
        " == ",
        "messages",
        "tools",
        "none",
        "'",
        "\"",
        "(",
        ")",
        "[",
        "]",
        "é",
        "\n",
        "range(100000000)",
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        " * 1000000",
        "|int",
        "~",
        "loop.index0",
        "1/0",
        " % 0",
    ];
    let calls = json!([{"id": "call00000", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]);
    let conversations = [
        json!({"messages": [{"role": "user", "content": "Hi"}]}),
        json!({"messages": [{"role": "system", "content": ""}, {"role": "user", "content": [{"type": "text", "text": "é"}]},
            {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": calls},
            {"role": "tool", "content": "1", "tool_call_id": "call00000", "name": "f"}],
            "tools": super::output::tests::tools(), "enable_thinking": true}),
    ];
    let tokenizer = with_bos();
    let mut choices = Choices::new();
    let mut tried = 0_usize;
    while !choices.is_over() || tried < 10 {
        let source = choices.mutated(&seeds, &words);
        let started = Instant::now();
        let sources = vec![("default".to_owned(), source.clone())];
        if let Ok(template) = ChatTemplate::compile(sources, &tokenizer, CLOCK) {
            let request = choices.one(&[&conversations[0], &conversations[1]]);
            let result = template.render(request);
            assert!(
                result.is_ok() || result.is_err_and(|error| error.kind() == Kind::Template),
                "{source}"
            );
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{source}");
        tried += 1;
    }
}
