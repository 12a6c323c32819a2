//! A llama whose weights are a table: what follows a token depends on nothing else. So it says
//! exactly what a script wants, reasoning and tool calls included.

use std::fs;

use mlxb::{LoadOptions, Model};
use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Map, Value, json};

/// Each answer by the letter with which a generation prompt asks for it. Within all of them a
/// piece, which is one token, is there once only.
const SCRIPTS: &[(char, &[&str])] = &[
    ('a', &["Hello", ", wörld", "! 🙂"]),
    (
        'b',
        &[
            "<think>\n",
            "Let me",
            " see.",
            "\n</think>\n\n",
            "It is",
            " noon.",
        ],
    ),
    (
        'c',
        &[
            "I will",
            " look.",
            "\n<tool_call>\n",
            "{\"name\": \"weather\", \"arguments\": ",
            "{\"city\": \"Oslo\", \"days\": 2}}",
            "\n</tool_call>",
            "\n<tool_call>",
            "\n{\"name\": \"time\", \"arguments\": {}}\n",
            "</tool_call>\n",
        ],
    ),
    (
        'd',
        &[
            "<think>",
            "\nTwo tools",
            "\n</think>",
            "\n\n<tool_call>\n{\"name\": \"time\", ",
            "\"arguments\": {\"zone\": \"UTC\"}}\n</tool_call> ",
        ],
    ),
    (
        'e',
        &[
            "<tool_call>\n{\"name\": \"weather\", \"arguments\"",
            ": {\"city\": ",
            "\"Bergen\"",
            "}}\n</tool_call>  ",
        ],
    ),
];

/// What follows the beginning of a call that must be made, by the character that it ends with.
const CALLS: &[(char, &[&str])] = &[
    (
        '\n',
        &[
            "{\"name\": \"time\", ",
            "\"arguments\": {\"zone\": \"CET\"}}",
            "\n</tool_call>   ",
        ],
    ),
    (' ', &["{\"city\": \"Rome\"}", "}\n</tool_call>    "]),
    (
        '"',
        &[
            "time\", \"arguments\": {\"zone\": ",
            "\"EET\"}}\n</tool_call>     ",
        ],
    ),
];

/// As Qwen3's does it, with the letter of the answer at its end.
const TEMPLATE: &str = r#"
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
    {{- 'Tools:\n<tools>' }}
    {%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\n</tools>\nCalls:\n<tool_call>\n{"name": name, "arguments": object}\n</tool_call>' }}
    {{- '<|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\n' }}
        {%- if message.reasoning_content %}
            {{- '<think>\n' + message.reasoning_content.strip('\n') + '\n</think>\n\n' }}
        {%- endif %}
        {{- message.content }}
        {%- for call in message.tool_calls or [] %}
            {{- '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\n<tool_response>\n' + message.content }}
        {{- '\n</tool_response><|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{{- script or '' }}{%- endif %}
"#;

const SPECIAL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
const END: usize = 2;
const BYTES: usize = SPECIAL.len();
const HEAD: usize = 16;
const INNER: usize = 16;

/// The id of a character's only or last byte.
fn last_byte(character: char) -> usize {
    let mut buffer = [0; 4];
    let bytes = character.encode_utf8(&mut buffer).as_bytes();
    BYTES + usize::from(bytes[bytes.len() - 1])
}

/// Loads the model.
pub(crate) fn load() -> Model {
    load_with(TEMPLATE, &[SCRIPTS, CALLS].concat())
}

/// Loads one with another template and other answers.
pub(crate) fn load_with(template: &str, scripts: &[(char, &[&str])]) -> Model {
    let mut pieces: Vec<&str> = Vec::new();
    let mut next = vec![END; BYTES + 256];
    for (trigger, script) in scripts {
        let mut last = last_byte(*trigger);
        for piece in *script {
            assert!(!pieces.contains(piece), "a piece is there twice: {piece:?}");
            pieces.push(piece);
            next[last] = next.len();
            last = next.len();
            next.push(END);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let vocabulary = next.len();
    for (name, document) in [
        ("config.json", config(vocabulary).to_string()),
        ("tokenizer.json", tokenizer(&pieces).to_string()),
        (
            "tokenizer_config.json",
            json!({"eos_token": "<|im_end|>"}).to_string(),
        ),
        ("chat_template.jinja", template.to_owned()),
    ] {
        fs::write(folder.path().join(name), document).unwrap();
    }
    let tensors = tensors(&next);
    let views = tensors.iter().map(|(name, shape, numbers)| {
        (
            name,
            TensorView::new(Dtype::F32, shape.clone(), numbers).unwrap(),
        )
    });
    let file = safetensors::serialize(views, None).unwrap();
    fs::write(folder.path().join("model.safetensors"), file).unwrap();
    Model::load(folder.path(), LoadOptions::default()).unwrap()
}

fn config(vocabulary: usize) -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "vocab_size": vocabulary, "hidden_size": vocabulary, "intermediate_size": INNER,
        "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1,
        "head_dim": HEAD, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "tie_word_embeddings": false, "eos_token_id": END,
        "torch_dtype": "float32",
    })
}

/// Byte-level BPE without merges; the pieces are added tokens.
fn tokenizer(pieces: &[&str]) -> Value {
    let printable = |byte: &u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut others = 256..;
    let mut vocabulary = Map::new();
    for (id, text) in SPECIAL.iter().enumerate() {
        vocabulary.insert((*text).into(), id.into());
    }
    for value in 0..256_u32 {
        let code = if printable(&value) {
            value
        } else {
            others.next().unwrap()
        };
        let name = char::from_u32(code).unwrap().to_string();
        vocabulary.insert(name, (value as usize + BYTES).into());
    }
    let added = |id: usize, text: &str, special: bool| {
        json!({"id": id, "content": text, "special": special, "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false})
    };
    let special = SPECIAL
        .iter()
        .enumerate()
        .map(|(id, text)| added(id, text, true));
    let pieces = pieces.iter().enumerate();
    let pieces = pieces.map(|(index, text)| added(BYTES + 256 + index, text, false));
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false,
        "trim_offsets": true, "use_regex": false});
    json!({
        "version": "1.0", "added_tokens": special.chain(pieces).collect::<Vec<_>>(),
        "pre_tokenizer": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    })
}

/// A token is its own direction, which neither attention nor the block changes, and points to
/// the token that follows.
fn tensors(next: &[usize]) -> Vec<(String, Vec<usize>, Vec<u8>)> {
    let width = next.len();
    let mut embedding = vec![0.0_f32; width * width];
    let mut head = embedding.clone();
    for (token, &following) in next.iter().enumerate() {
        embedding[token * width + token] = 1.0;
        head[following * width + token] = 1.0;
    }
    let zeros = |rows: usize, columns: usize| (vec![rows, columns], vec![0.0; rows * columns]);
    let ones = || (vec![width], vec![1.0_f32; width]);
    let layer = |part: &str| format!("model.layers.0.{part}.weight");
    [
        (
            "model.embed_tokens.weight".into(),
            (vec![width, width], embedding),
        ),
        ("lm_head.weight".into(), (vec![width, width], head)),
        ("model.norm.weight".into(), ones()),
        (layer("input_layernorm"), ones()),
        (layer("post_attention_layernorm"), ones()),
        (layer("self_attn.q_proj"), zeros(HEAD, width)),
        (layer("self_attn.k_proj"), zeros(HEAD, width)),
        (layer("self_attn.v_proj"), zeros(HEAD, width)),
        (layer("self_attn.o_proj"), zeros(width, HEAD)),
        (layer("mlp.gate_proj"), zeros(INNER, width)),
        (layer("mlp.up_proj"), zeros(INNER, width)),
        (layer("mlp.down_proj"), zeros(width, INNER)),
    ]
    .map(
        |(name, (shape, numbers)): (String, (Vec<usize>, Vec<f32>))| {
            let bytes = numbers.into_iter().flat_map(f32::to_le_bytes).collect();
            (name, shape, bytes)
        },
    )
    .into()
}
