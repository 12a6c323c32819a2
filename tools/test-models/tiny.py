"""A llama of 120,000 random weights with a vocabulary of bytes, for tests where a model must be
quick rather than say something:

    tiny.py OUT
"""

import os
import sys

import numpy as np
from snapshot import added_token, byte_level_tokenizer, write

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 256 + len(SPECIAL),
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "hidden_act": "silu",
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}


def byte_alphabet():
    """The characters that byte-level BPE writes the 256 bytes as: printable ones stand for
    themselves, the others for the code points from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (byte for byte in range(256) if byte not in printable)
    names = {byte: chr(byte) for byte in printable}
    names.update((byte, chr(256 + n)) for n, byte in enumerate(others))
    return [names[byte] for byte in range(256)]


def tensors():
    random = np.random.default_rng(1)
    hidden, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    kv = CONFIG["num_key_value_heads"] * CONFIG["head_dim"]
    matrix = lambda rows, columns: (
        random.standard_normal((rows, columns)) / np.sqrt(columns)
    ).astype(np.float32)
    norm = lambda: random.uniform(0.5, 1.5, hidden).astype(np.float32)

    made = {"model.embed_tokens.weight": matrix(CONFIG["vocab_size"], hidden)}
    for layer in range(CONFIG["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        made[prefix + "input_layernorm.weight"] = norm()
        for name, rows, columns in (
            ("self_attn.q_proj", hidden, hidden),
            ("self_attn.k_proj", kv, hidden),
            ("self_attn.v_proj", kv, hidden),
            ("self_attn.o_proj", hidden, hidden),
            ("mlp.gate_proj", inner, hidden),
            ("mlp.up_proj", inner, hidden),
            ("mlp.down_proj", hidden, inner),
        ):
            made[f"{prefix}{name}.weight"] = matrix(rows, columns)
        made[prefix + "post_attention_layernorm.weight"] = norm()
    made["model.norm.weight"] = norm()
    # A head of its own: with the embedding as head the likeliest token is the last one again.
    made["lm_head.weight"] = matrix(CONFIG["vocab_size"], hidden)
    return made


def main(out):
    special = dict(enumerate(SPECIAL))
    vocabulary = {token: i for i, token in enumerate(SPECIAL + byte_alphabet())}
    named = {"bos_token": SPECIAL[1], "eos_token": SPECIAL[2], "unk_token": SPECIAL[0]}
    documents = {
        "config.json": CONFIG,
        "generation_config.json": {"bos_token_id": 1, "eos_token_id": [0, 2]},
        "tokenizer.json": byte_level_tokenizer(vocabulary, [], special, digits_apart=False),
        "tokenizer_config.json": {
            **named,
            "added_tokens_decoder": {str(i): added_token(text) for i, text in special.items()},
            "clean_up_tokenization_spaces": False,
            "model_max_length": CONFIG["max_position_embeddings"],
            "tokenizer_class": "GPT2Tokenizer",
            "chat_template": CHAT_TEMPLATE,
        },
    }
    write(os.path.join(out, "tiny"), tensors(), "pt", documents)


main(sys.argv[1])
