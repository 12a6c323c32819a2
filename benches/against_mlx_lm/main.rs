//! libmlxb against mlx-lm as shipped, on the same MLX and BLAS: one table from one run.
//!
//! Each side is a process that reads requests and answers with times: this program again for
//! the library, `mlx_lm_side.py` for mlx-lm. The two take turns, a fresh process each round, so
//! that a busy machine slows both alike; the table holds medians.
#![expect(clippy::print_stdout, reason = "a program that prints a table")]

mod library_side;
#[path = "../machine/mod.rs"]
mod machine;
mod side;

use std::{env, path::Path};

use serde::Deserialize;

use side::{Answer, Side, Way};

const ROUNDS: usize = 5;
const PREFILL_TOKENS: usize = 256;
const DECODE_TOKENS: usize = 48;
const TINY_DECODE_TOKENS: usize = 512;
const WIDE_DECODE_TOKENS: usize = 64;
/// Requests of the same process at the same time.
const AT_ONCE: usize = 4;

/// What is measured in a round, in the table's order.
const MEASURES: [Measure; 6] = [
    Measure {
        name: "decode, 135M f32",
        unit: "tokens/s",
        aim: Aim::AtLeast(1.0),
    },
    Measure {
        name: "prefill, 135M f32",
        unit: "tokens/s",
        aim: Aim::AtLeast(1.0),
    },
    Measure {
        name: "a token of a tiny model",
        unit: "µs",
        aim: Aim::AtMost(0.5),
    },
    Measure {
        name: "sampling a token of 152,064",
        unit: "µs",
        aim: Aim::AtMost(1.0),
    },
    Measure {
        name: "process start to first token",
        unit: "s",
        aim: Aim::AtMost(0.3),
    },
    Measure {
        name: "peak memory",
        unit: "MB",
        aim: Aim::AtMost(1.0),
    },
];

struct Measure {
    name: &'static str,
    unit: &'static str,
    aim: Aim,
}

/// For the library's number divided by mlx-lm's.
enum Aim {
    AtLeast(f64),
    AtMost(f64),
}

impl Aim {
    fn is_met(&self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(bound) => ratio >= *bound,
            Self::AtMost(bound) => ratio <= *bound,
        }
    }
}

impl std::fmt::Display for Aim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, ">= {bound:.1}"),
            Self::AtMost(bound) => write!(f, "<= {bound:.1}"),
        }
    }
}

/// What both sides run.
struct Work {
    real_model: String,
    tiny_model: String,
    wide_model: String,
    prefill: Vec<u32>,
    decode: Vec<u32>,
    tiny: Vec<u32>,
}

impl Work {
    fn new() -> Self {
        #[derive(Deserialize)]
        struct Golden {
            prompt: String,
            prompt_ids: Vec<u32>,
        }
        let golden: Vec<Golden> =
            serde_json::from_str(include_str!("../../tests/parity/golden_smollm2_f32.json"))
                .expect("its form is known");
        // An answer that is long enough.
        let decode = golden
            .iter()
            .find(|row| row.prompt == "List the days of the week.")
            .expect("it is among them")
            .prompt_ids
            .clone();
        let tiny_model = side::test_model("tiny");
        let ids = golden.into_iter().flat_map(|row| row.prompt_ids);
        Self {
            real_model: side::test_model("f32"),
            wide_model: side::wide_model(&tiny_model),
            tiny_model,
            prefill: ids.take(PREFILL_TOKENS).collect(),
            decode,
            // One whose answer does not end by itself.
            tiny: (4..20).collect(),
        }
    }
}

/// One number for each of [`MEASURES`], and the ids of all answers, which must be the same on
/// both sides.
fn round(side: Side, work: &Work) -> ([f64; MEASURES.len()], Vec<Vec<u32>>) {
    let mut process = side.start(&work.real_model);
    let first = process.ask(&work.decode, 1);
    let start_seconds = process.age().as_secs_f64();
    process.ask(&work.prefill, 1);
    let prefill = process.ask(&work.prefill, 1);
    let decode = process.ask(&work.decode, DECODE_TOKENS);
    let peak_bytes = process.end();

    let mut process = side.start(&work.tiny_model);
    process.ask(&work.tiny, TINY_DECODE_TOKENS);
    let tiny = process.ask(&work.tiny, TINY_DECODE_TOKENS);
    process.end();

    let mut process = side.start(&work.wide_model);
    let mut wide = |way| process.ask_for(way, &work.tiny, WIDE_DECODE_TOKENS);
    wide(Way::Sampled);
    let (greedy, sampled) = (wide(Way::Greedy), wide(Way::Sampled));
    process.end();

    let decode_seconds = |answer: &Answer, count: usize| {
        assert_eq!(answer.ids.len(), count, "an answer ended early");
        answer.rest_seconds / (count - 2) as f64
    };
    let numbers = [
        1.0 / decode_seconds(&decode, DECODE_TOKENS),
        PREFILL_TOKENS as f64 / prefill.first_seconds,
        1e6 * decode_seconds(&tiny, TINY_DECODE_TOKENS),
        // What sampling takes beyond taking the most likely token.
        1e6 * (decode_seconds(&sampled, WIDE_DECODE_TOKENS)
            - decode_seconds(&greedy, WIDE_DECODE_TOKENS)),
        start_seconds,
        peak_bytes as f64 / 1e6,
    ];
    // Drawn ids are not compared: the two sides' random streams differ.
    let ids = vec![first.ids, prefill.ids, decode.ids, tiny.ids, greedy.ids];
    (numbers, ids)
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    if numbers.len() % 2 == 1 {
        numbers[middle]
    } else {
        f64::midpoint(numbers[middle - 1], numbers[middle])
    }
}

fn compare(work: &Work) {
    // The first processes fill the system's file cache, and mlx-lm's compiles its kernels.
    let warm = |side: Side| side.start(&work.real_model).ask(&work.decode, 2);
    warm(Side::Library);
    warm(Side::MlxLm);

    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (our_numbers, our_ids) = round(Side::Library, work);
        let (their_numbers, their_ids) = round(Side::MlxLm, work);
        assert_eq!(our_ids, their_ids, "the two sides' answers");
        ours.push(our_numbers);
        theirs.push(their_numbers);
    }

    println!(
        "medians of {ROUNDS} interleaved rounds, mlx-lm as shipped on the same libmlx and BLAS"
    );
    println!();
    println!("| measure | unit | libmlxb | mlx-lm | ratio | aim | |");
    println!("|---|---|---:|---:|---:|---|---|");
    for (index, measure) in MEASURES.iter().enumerate() {
        let of =
            |rounds: &[[f64; MEASURES.len()]]| median(rounds.iter().map(|r| r[index]).collect());
        let (ours, theirs) = (of(&ours), of(&theirs));
        let ratio = ours / theirs;
        let verdict = if measure.aim.is_met(ratio) {
            "met"
        } else {
            "missed"
        };
        println!(
            "| {} | {} | {ours:.2} | {theirs:.2} | {ratio:.2} | {} | {verdict} |",
            measure.name, measure.unit, measure.aim
        );
    }
}

/// Several requests at once against the same ones in turn, both of the library.
fn compare_at_once(work: &Work) {
    let mut process = Side::Library.start(&work.real_model);
    let mut ask = |way| process.ask_for(way, &work.decode, DECODE_TOKENS);
    let (mut together, mut in_turn) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (at_once, one_by_one) = (ask(Way::Together), ask(Way::InTurn));
        assert_eq!(at_once.ids, one_by_one.ids, "the answers");
        together.push(at_once.rest_seconds);
        in_turn.push(one_by_one.rest_seconds);
    }
    process.end();
    let (together, in_turn) = (median(together), median(in_turn));
    println!();
    println!("| measure | unit | at once | in turn | ratio |");
    println!("|---|---|---:|---:|---:|");
    println!(
        "| {AT_ONCE} requests, 135M f32 | s | {together:.2} | {in_turn:.2} | {:.2} |",
        together / in_turn
    );
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [machine::TOUCHING_SIDE] => machine::touching_side(),
        [side::LIBRARY_SIDE, model] => library_side::serve(Path::new(model)),
        _ => {
            let work = Work::new();
            compare(&work);
            compare_at_once(&work);
        }
    }
}
