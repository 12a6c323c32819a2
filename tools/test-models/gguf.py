"""Reads a GGUF file: its metadata, and tensors as numbers or as quantized blocks."""

import mmap
import struct
from dataclasses import dataclass

import numpy as np

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
F32, F16, Q4_1, Q8_0 = 0, 1, 3, 8
BLOCK = 32


@dataclass
class Quantized:
    """Weights in groups of 32 along the rows: value = quantum * scale + bias."""

    bits: int
    quanta: np.ndarray  # uint8 [rows, columns]
    scales: np.ndarray  # float16 [rows, columns / 32]
    biases: np.ndarray  # float16 [rows, columns / 32]

    def __getitem__(self, rows):
        return Quantized(self.bits, self.quanta[rows], self.scales[rows], self.biases[rows])

    def dequantized(self):
        rows, columns = self.quanta.shape
        groups = self.quanta.reshape(rows, -1, BLOCK).astype(np.float32)
        scales, biases = (a.astype(np.float32)[..., None] for a in (self.scales, self.biases))
        return (groups * scales + biases).reshape(rows, columns)


class Gguf:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if self.bytes[:4] != b"GGUF":
            raise SystemExit(f"not a GGUF file: {path}")
        self.at = 4
        self._take("I")  # version
        tensor_count, key_count = self._take("Q"), self._take("Q")
        self.metadata = {self._string(): self._value(self._take("I")) for _ in range(key_count)}
        self.tensors = {}
        for _ in range(tensor_count):
            name = self._string()
            shape = [self._take("Q") for _ in range(self._take("I"))][::-1]
            self.tensors[name] = (shape, self._take("I"), self._take("Q"))
        alignment = self.metadata.get("general.alignment", BLOCK)
        self.data = -(-self.at // alignment) * alignment

    def tensor(self, name):
        """A float32 array, or Quantized."""
        shape, kind, offset = self.tensors[name]
        count, offset = int(np.prod(shape)), self.data + offset
        read = lambda dtype, n: np.frombuffer(self.bytes, dtype, n, offset)
        if kind in (F32, F16):
            return read("<f4" if kind == F32 else "<f2", count).reshape(shape).astype(np.float32)
        if kind == Q4_1:
            blocks = read([("scale", "<f2"), ("bias", "<f2"), ("quanta", "u1", 16)], count // BLOCK)
            packed = blocks["quanta"]
            quanta = np.concatenate([packed & 15, packed >> 4], axis=1)
            bits, biases = 4, blocks["bias"]
        elif kind == Q8_0:  # signed quanta without a bias: shifted to unsigned ones with one
            blocks = read([("scale", "<f2"), ("quanta", "i1", 32)], count // BLOCK)
            quanta = (blocks["quanta"].astype(np.int16) + 128).astype(np.uint8)
            bits, biases = 8, (blocks["scale"].astype(np.float32) * -128).astype(np.float16)
        else:
            raise SystemExit(f"{name} has an unsupported type: {kind}")
        by_row = (shape[0], -1)
        return Quantized(
            bits, quanta.reshape(shape), blocks["scale"].reshape(by_row), biases.reshape(by_row)
        )

    def _take(self, kind):
        (value,) = struct.unpack_from("<" + kind, self.bytes, self.at)
        self.at += struct.calcsize("<" + kind)
        return value

    def _string(self):
        length = self._take("Q")
        self.at += length
        return self.bytes[self.at - length : self.at].decode()

    def _value(self, kind):
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            element, count = self._take("I"), self._take("Q")
            return [self._value(element) for _ in range(count)]
        return self._take(SCALARS[kind])
