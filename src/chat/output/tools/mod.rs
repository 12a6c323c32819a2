//! How the families of models write tool calls.

mod cursor;
mod function_tags;
mod gemma;
mod invoke_tags;
mod json;
mod key_tags;
mod literal;
mod llama;
mod mistral;
mod pythonic;
mod schemas;
mod sections;
mod xtml;

use std::fmt::Debug;

use super::ToolCall;

pub(super) use self::cursor::{Cursor, Read, Stop};
pub(super) use self::json::arguments_of;
pub(super) use self::literal::whole;
pub(super) use self::schemas::Schemas;

/// How a family writes tool calls: blocks of one or more calls behind an opening marker. All
/// reading depends on the beginning of the text alone, so it comes to the same result however
/// the text arrives.
pub(super) trait Syntax: Debug + Sync {
    /// The markers that open a block.
    fn openings(&self) -> &'static [&'static str];

    /// What an answer begins with that is a block without a marker. It is part of the block.
    fn bare_openings(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether a call ends with the bracket that closes its arguments, which are written as
    /// values in JSON's notation or Python's.
    fn is_bracketed(&self) -> bool {
        false
    }

    /// The beginning of a block, up to the name of the tool or to its arguments.
    fn seed(&self, name: Option<&str>) -> String;

    /// Reads the first call of a block, from behind `opening`; it is empty for a bare one.
    fn first(&self, opening: &str, cursor: &mut Cursor<'_>, tools: &Schemas)
    -> Read<Vec<ToolCall>>;

    /// Reads what follows a call in its block: the next one, or the end (none). The block ends
    /// without a mark where this is [`Stop::Not`].
    fn next(
        &self,
        opening: &str,
        cursor: &mut Cursor<'_>,
        tools: &Schemas,
    ) -> Read<Option<Vec<ToolCall>>>;
}

/// A family's syntax by its name.
pub(super) fn by_name(name: &str) -> Option<&'static dyn Syntax> {
    Some(match name {
        "json" => &json::QWEN,
        "cohere" => &json::COHERE,
        "granite" => &json::GRANITE,
        "nemotron" => &json::NEMOTRON,
        "tool_calls" => &json::TOOL_CALLS,
        "firefunction" => &json::FIREFUNCTION,
        "gigachat" => &json::GIGACHAT,
        "function_xml" => &function_tags::QWEN_CODER,
        "seed" => &function_tags::SEED,
        "glm" => &key_tags::GLM,
        "longcat" => &key_tags::LONGCAT,
        "minimax" => &invoke_tags::MINIMAX,
        "minicpm" => &invoke_tags::MINICPM,
        "muse" => &invoke_tags::MUSE,
        "deepseek_xml" => &invoke_tags::DEEPSEEK,
        "gemma" => &gemma::GEMMA,
        "function_gemma" => &gemma::FUNCTION_GEMMA,
        "kimi" => &sections::KIMI,
        "deepseek" => &sections::DEEPSEEK,
        "kimi_k3" => &xtml::Xtml,
        "llama" => &llama::Llama,
        "mistral" => &mistral::Mistral,
        "pythonic" => &pythonic::LFM,
        _ => return None,
    })
}

/// A family's syntax by its name here or the one that mlx-lm has for it.
pub(super) fn by_name_in_files(name: &str) -> Option<&'static dyn Syntax> {
    by_name(match name {
        "json_tools" => "json",
        "qwen3_coder" => "function_xml",
        "glm47" | "laguna" => "glm",
        "kimi_k2" => "kimi",
        "minicpm5" => "minicpm",
        "minimax_m2" => "minimax",
        "gemma4" => "gemma",
        "muse_spark" => "muse",
        other => other,
    })
}

/// What shows a family's syntax in a template; the first that is found counts.
const SIGNS: &[(&str, &[&str])] = &[
    ("minimax", &["<minimax:tool_call>"]),
    ("gemma", &["<|tool_call>", "<tool_call|>"]),
    ("function_gemma", &["<start_function_call>"]),
    ("longcat", &["<longcat_tool_call>"]),
    ("glm", &["<arg_key>"]),
    ("pythonic", &["<|tool_list_start|>"]),
    ("pythonic", &["<|tool_call_start|>"]),
    ("seed", &["<seed:tool_call>"]),
    ("function_xml", &["<tool_call>", "<function="]),
    ("kimi", &["<|tool_calls_section_begin|>"]),
    ("minicpm", &["<function name=\"", "<param name=\""]),
    ("mistral", &["[TOOL_CALLS]"]),
    ("muse", &["<atem:function_calls>"]),
    ("deepseek_xml", &["｜DSML｜", "invoke name="]),
    ("deepseek", &["<｜tool▁calls▁begin｜>"]),
    ("kimi_k3", &["<|open|>", "<|close|>", "<|sep|>"]),
    ("cohere", &["<|START_ACTION|>"]),
    ("nemotron", &["<TOOLCALL>"]),
    ("tool_calls", &["<tool_calls>"]),
    ("firefunction", &["functools["]),
    ("gigachat", &["<|function_call|>"]),
    ("json", &["<tool_call>"]),
    ("granite", &["<|tool_call|>"]),
    ("llama", &["<|python_tag|>"]),
    (
        "llama",
        &["\"parameters\": dictionary of argument name and its value"],
    ),
];

/// The name of the syntax that a template writes.
pub(super) fn find(template: &str) -> Option<&'static str> {
    SIGNS
        .iter()
        .find(|(_, signs)| signs.iter().all(|sign| template.contains(sign)))
        .map(|(name, _)| *name)
}

/// The name of the syntax that a vocabulary was made for.
pub(super) fn find_in_vocabulary(has: impl Fn(&str) -> bool) -> Option<&'static str> {
    if ["<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"]
        .into_iter()
        .all(&has)
    {
        Some("kimi_k3")
    } else if has("<|tool_call_start|>") && has("<|tool_call_end|>") {
        Some("pythonic")
    } else {
        None
    }
}
