"""The divergences that a report tells, computed with mlx-lm.

    divergence.py FOLDER IDS.json BITS GROUP_SIZE OUT.json

writes {"whole", "layers": {path: ...}}: with all matrices quantized, and with those of one layer.
"""

import json
import sys
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

WINDOW = 128


def log_probabilities(model, ids):
    logits = model(mx.array([ids]), cache=make_prompt_cache(model)).astype(mx.float32)
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def layer_of(path):
    parts = path.split(".")
    return ".".join(parts[:3] if parts[:2] == ["model", "layers"] else parts)


def main(folder, ids, bits, group_size, out):
    ids = json.loads(Path(ids).read_text())
    windows = [ids[at : at + WINDOW] for at in range(0, len(ids), WINDOW)]
    model, _ = load_model(Path(folder))
    expected = [log_probabilities(model, window) for window in windows]
    paths = [p for p, m in model.named_modules() if hasattr(m, "to_quantized")]
    layers = sorted(set(map(layer_of, paths)))

    def divergence(chosen):
        model, _ = load_model(Path(folder))
        nn.quantize(
            model,
            int(group_size),
            int(bits),
            class_predicate=lambda path, m: hasattr(m, "to_quantized")
            and (chosen is None or layer_of(path) == chosen),
        )
        total = 0.0
        for window, source in zip(windows, expected):
            terms = mx.exp(source) * (source - log_probabilities(model, window))
            total += sum(terms.sum(axis=-1)[0].tolist())
        return total / len(ids)

    made = {"whole": divergence(None), "layers": {l: divergence(l) for l in layers}}
    Path(out).write_text(json.dumps(made))


mx.disable_compile()
main(*sys.argv[1:])
