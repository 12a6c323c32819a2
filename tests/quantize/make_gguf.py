"""Tiny GGUF files with tensors of every type that is read, and what MLX's own reader makes of
them.

    make_gguf.py OUT

writes OUT/model.gguf, OUT/packed (its blocks as groups, the rest in float16) and OUT/plain (all
of it in float32), the last two as folders with an index and without anything else.
"""

import json
import struct
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 64, 96, 3, 4, 2, 16
F32, F16, Q4_0, Q4_1, Q8_0 = 0, 1, 2, 3, 8
TYPES = [Q4_0, Q8_0, F32, Q4_1, F16]

random = np.random.default_rng(5)


def data(kind, rows, columns):
    """Random weights as the file has them."""
    values = (random.standard_normal((rows, columns)) / columns**0.5).astype("<f4")
    if kind in (F32, F16):
        return values.astype("<f4" if kind == F32 else "<f2").tobytes()
    count = rows * columns // 32
    scale = (random.uniform(0.5, 1.5, (count, 1)) / 40).astype("<f2").view("u1")
    quanta = random.integers(0, 256, (count, 32 if kind == Q8_0 else 16), dtype="u1")
    parts = [scale, quanta]
    if kind == Q8_0:
        parts[0] = (random.uniform(0.5, 1.5, (count, 1)) / 600).astype("<f2").view("u1")
    if kind == Q4_1:
        offset = random.uniform(-0.3, 0, (count, 1)).astype("<f2").view("u1")
        parts = [scale, offset, quanta]
    return np.concatenate(parts, axis=1).tobytes()


def byte_alphabet():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (byte for byte in range(256) if byte not in printable)
    names = {byte: chr(byte) for byte in printable}
    names.update((byte, chr(256 + n)) for n, byte in enumerate(others))
    return [names[byte] for byte in range(256)]


TOKENS = ["<s>", "</s>", *byte_alphabet(), "th", "the"]


def text(value):
    value = value.encode()
    return struct.pack("<Q", len(value)) + value


def value(item):
    if isinstance(item, bool):
        return struct.pack("<IB", 7, item)
    if isinstance(item, int):
        return struct.pack("<II", 4, item)
    if isinstance(item, float):
        return struct.pack("<If", 6, item)
    if isinstance(item, str):
        return struct.pack("<I", 8) + text(item)
    if isinstance(item[0], str):
        return struct.pack("<IIQ", 9, 8, len(item)) + b"".join(map(text, item))
    return struct.pack(f"<IIQ{len(item)}i", 9, 5, len(item), *item)


METADATA = {
    "general.architecture": "llama",
    "llama.block_count": LAYERS,
    "llama.context_length": 512,
    "llama.embedding_length": HIDDEN,
    "llama.feed_forward_length": INNER,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": KV_HEADS,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 10000.0,
    "llama.rope.dimension_count": HEAD_DIM,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [3, 3] + [1] * (len(TOKENS) - 2),
    "tokenizer.ggml.merges": ["t h", "th e"],
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.eos_token_id": 1,
    "tokenizer.ggml.add_bos_token": True,
}

IN_LAYER = {
    "attn_norm": ("input_layernorm", None, HIDDEN),
    "attn_q": ("self_attn.q_proj", HEADS * HEAD_DIM, HIDDEN),
    "attn_k": ("self_attn.k_proj", KV_HEADS * HEAD_DIM, HIDDEN),
    "attn_v": ("self_attn.v_proj", KV_HEADS * HEAD_DIM, HIDDEN),
    "attn_output": ("self_attn.o_proj", HIDDEN, HEADS * HEAD_DIM),
    "ffn_norm": ("post_attention_layernorm", None, HIDDEN),
    "ffn_gate": ("mlp.gate_proj", INNER, HIDDEN),
    "ffn_up": ("mlp.up_proj", INNER, HIDDEN),
    "ffn_down": ("mlp.down_proj", HIDDEN, INNER),
}


def modules():
    """The file's name, the model's, rows (None: a vector), columns."""
    yield "token_embd", "model.embed_tokens", len(TOKENS), HIDDEN
    for layer in range(LAYERS):
        for theirs, (ours, rows, columns) in IN_LAYER.items():
            yield f"blk.{layer}.{theirs}", f"model.layers.{layer}.{ours}", rows, columns
    yield "output_norm", "model.norm", None, HIDDEN
    yield "output", "lm_head", len(TOKENS), HIDDEN


def write_gguf(path):
    entries, blob, matrices = b"", b"", 0
    for name, _, rows, columns in modules():
        if rows is None:
            kind, shape = F32, [columns]
            raw = random.uniform(0.5, 1.5, columns).astype("<f4").tobytes()
        else:
            kind, shape = TYPES[matrices % len(TYPES)], [columns, rows]
            raw = data(kind, rows, columns)
            matrices += 1
        entries += text(f"{name}.weight")
        entries += struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(blob))
        blob += raw + bytes(-len(raw) % 32)
    keys = b"".join(text(key) + value(item) for key, item in METADATA.items())
    count = sum(1 for _ in modules())
    header = b"GGUF" + struct.pack("<IQQ", 3, count, len(METADATA)) + keys + entries
    path.write_bytes(header + bytes(-len(header) % 32) + blob)


def reordered(name, tensor):
    """Rows as Hugging Face orders them: the file has those of each head's halves in turn."""
    if not name.endswith(("q_proj", "k_proj")):
        return tensor
    heads = tensor.shape[0] // HEAD_DIM
    halves = tensor.reshape(heads, HEAD_DIM // 2, 2, -1).swapaxes(1, 2)
    return mx.contiguous(halves.reshape(tensor.shape))


def save(folder, tensors):
    folder.mkdir()
    mx.save_safetensors(str(folder / "model.safetensors"), tensors)
    index = {
        "metadata": {"total_size": sum(t.nbytes for t in tensors.values())},
        "weight_map": dict.fromkeys(sorted(tensors), "model.safetensors"),
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def main(out):
    write_gguf(out / "model.gguf")
    read = mx.load(str(out / "model.gguf"))
    packed, plain = {}, {}
    for theirs, ours, _, columns in modules():
        parts = {
            part: reordered(ours, read[f"{theirs}.{part}"])
            for part in ("weight", "scales", "biases")
            if f"{theirs}.{part}" in read
        }
        for part, tensor in parts.items():
            to = tensor.dtype if tensor.dtype == mx.uint32 else mx.float16
            packed[f"{ours}.{part}"] = tensor.astype(to)
        if "scales" in parts:
            bits = parts["weight"].shape[1] * 32 // columns
            wide = (parts[part].astype(mx.float32) for part in ("scales", "biases"))
            plain[f"{ours}.weight"] = mx.dequantize(parts["weight"], *wide, 32, bits)
        else:
            plain[f"{ours}.weight"] = parts["weight"].astype(mx.float32)
    save(out / "packed", packed)
    save(out / "plain", plain)


main(Path(sys.argv[1]))
