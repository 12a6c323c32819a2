"""Reads a file of the prompt cache as anybody would.

    read_segment.py FILE EXPECTED

EXPECTED holds the bytes of the tensors between `tokens` and `checksums`.
"""

import sys

import mlx.core as mx
import numpy as np
from safetensors import safe_open

path, expected = sys.argv[1:]
expected = open(expected, "rb").read()

with safe_open(path, "numpy") as file:
    metadata = file.metadata()
    assert metadata["format"] == "mlxb-kv" and metadata["version"] == "1", metadata
    assert (metadata["start"], metadata["token_count"]) == ("4", "6"), metadata
    assert len(metadata["namespace"]) == len(metadata["parent"]) == 64, metadata
    assert file.get_tensor("tokens").tolist() == [4, 5, 6, 7, 8, 2**32 - 1]
    assert file.get_tensor("checksums").shape == (5,)
    assert file.get_slice("layers.0.keys").get_shape() == [1, 2, 6, 4]

arrays, metadata = mx.load(path, return_metadata=True)
assert metadata["start"] == "4", metadata
names = ["layers.0.keys", "layers.0.values", "layers.1.keys"]
assert sorted(arrays) == sorted(["tokens", "checksums", *names]), arrays.keys()
assert arrays["layers.0.keys"].dtype == mx.bfloat16
assert arrays["layers.0.values"].shape == (1, 3, 6, 5)
found = b"".join(
    np.array(arrays[name].view(mx.uint8), copy=False).tobytes() for name in names
)
assert found == expected
