"""Writes a model folder as Hugging Face lays it out."""

import json
import os
import struct

import numpy as np

DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "uint32": "U32"}


def bfloat16(values):
    """The bits of the nearest bfloat16, ties to even; numpy has no such type."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def pack(quanta, bits):
    """Quanta of a power of two bits in uint32 words, the first in the lowest bits, as MLX has them."""
    per_word = 32 // bits
    lanes = quanta.reshape(quanta.shape[0], -1, per_word).astype(np.uint32)
    shifts = (np.arange(per_word) * bits).astype(np.uint32)
    return np.bitwise_or.reduce(lanes << shifts, axis=-1)


def write_tensors(path, tensors, form):
    """`tensors`: name -> array, uint16 standing for bfloat16. `form`: "pt" or "mlx"."""
    header, offset = {"__metadata__": {"format": form}}, 0
    for name, array in sorted(tensors.items()):
        dtype = "bfloat16" if array.dtype == np.uint16 else str(array.dtype)
        end = offset + array.nbytes
        header[name] = {
            "dtype": DTYPES[dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    header = json.dumps(header, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for _, array in sorted(tensors.items()):
            file.write(np.ascontiguousarray(array).tobytes())


def write(folder, tensors, form, documents):
    """`documents`: file name -> JSON value."""
    os.makedirs(folder)
    write_tensors(os.path.join(folder, "model.safetensors"), tensors, form)
    for name, value in documents.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(value, file, ensure_ascii=False, indent=1)


def byte_level_tokenizer(vocabulary, merges, special, digits_apart):
    """tokenizer.json of a byte-level BPE. `special`: id -> text of the control tokens."""
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    digits = {"type": "Digits", "individual_digits": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [dict(id=i, **added_token(text)) for i, text in special.items()],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, byte_level]}
        if digits_apart
        else byte_level,
        "post_processor": None,
        "decoder": dict(byte_level, add_prefix_space=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocabulary,
            "merges": merges,
        },
    }


def added_token(text):
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"content": text, **flags, "special": True}
