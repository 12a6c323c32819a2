"""What mlx-lm computes, for the parity tests to compare with.

    reference.py OUT CASES.json

CASES is a list of {"name", "folder", "prompts": [{"ids", "chunk"}], "tokens"}.
Writes OUT/NAME.json, with the greedy ids of each prompt and the margin of each
(how far the best log-probability is above the second), and OUT/NAME.f32, each
prompt's logits after its last token as raw little-endian f32, one after another.

MLX's compile is off: on a CPU it builds other kernels with the system's C++
compiler, so that the operations would not be the same. `--compile` leaves it on.
"""

import importlib
import json
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm.generate import generate_step
from mlx_lm.utils import MODEL_REMAPPING, load_model

FOREIGN = ("vision_tower.", "multi_modal_projector.", "model.visual.", "mtp.")


def text_model_name(name):
    """A name without the place of the text model in a larger one."""
    name = name.removeprefix("language_model.")
    return name.replace("model.language_model.", "model.", 1)


def classes(config):
    """mlx-lm's own, reading tensors also under the names of a vision model's export."""
    model_type = config["model_type"]
    model_type = MODEL_REMAPPING.get(model_type, model_type)
    module = importlib.import_module(f"mlx_lm.models.{model_type}")

    class Model(module.Model):
        def sanitize(self, weights):
            ours = {
                text_model_name(name): tensor
                for name, tensor in weights.items()
                if not name.startswith(FOREIGN)
            }
            return super().sanitize(ours)

    return Model, module.ModelArgs


def load(folder):
    """The model in `folder`. What mlx-lm does not read itself is put in its words:
    a config nested in text_config, and a quantization that the config does not tell."""
    config = json.loads((folder / "config.json").read_text())
    changes = dict(config.get("text_config", {}))
    quantized = any(
        name.endswith(".scales")
        for file in folder.glob("model*.safetensors")
        for name in mx.load(str(file))
    )
    if quantized:
        # Only modules without entries of their own fall back to this, and of
        # those mlx-lm takes the shapes' word.
        told = {"group_size": 64, "bits": 4} | (config.get("quantization") or {})
        told = {text_model_name(key): value for key, value in told.items()}
        changes["quantization"] = told
    model, _ = load_model(folder, model_config=changes, get_model_classes=classes)
    return model


class Listener:
    """A model that remembers the logits of each token that is run alone."""

    def __init__(self, model):
        self.model, self.logits = model, []

    def __getattr__(self, name):
        return getattr(self.model, name)

    def __call__(self, ids, **options):
        logits = self.model(ids, **options)
        if ids.shape[1] == 1:
            self.logits.append(logits[0, -1])
        return logits


def answer(model, ids, chunk, count):
    """Greedy ids, the margin of each, and the logits after the last of `ids`, which
    generate_step runs alone."""
    model = Listener(model)
    tokens, margins = [], []
    steps = generate_step(
        mx.array(ids), model, max_tokens=count, prefill_step_size=chunk
    )
    for token, log_probabilities in steps:
        best = mx.sort(log_probabilities.astype(mx.float32))[-2:]
        tokens.append(token)
        margins.append((best[1] - best[0]).item())
    return tokens, margins, model.logits[0]


def run(out, case):
    model = load(Path(case["folder"]))
    raw, prompts, dtype = [], [], None
    for prompt in case["prompts"]:
        ids, chunk = prompt["ids"], prompt["chunk"]
        tokens, margins, logits = answer(model, ids, chunk, case["tokens"])
        dtype = str(logits.dtype).removeprefix("mlx.core.")
        raw.append(np.array(logits.astype(mx.float32), dtype="<f4"))
        prompts.append({"ids": ids, "chunk": chunk, "greedy": tokens, "margins": margins})
    (out / f"{case['name']}.f32").write_bytes(np.concatenate(raw).tobytes())
    told = {
        "name": case["name"],
        "folder": case["folder"],
        "dtype": dtype,
        "vocabulary": int(raw[0].size),
        "prompts": prompts,
    }
    (out / f"{case['name']}.json").write_text(json.dumps(told))


def main():
    arguments = [a for a in sys.argv[1:] if a != "--compile"]
    if len(arguments) == len(sys.argv) - 1:
        mx.disable_compile()
    out, cases = Path(arguments[0]), json.loads(Path(arguments[1]).read_text())
    out.mkdir(parents=True, exist_ok=True)
    for case in cases:
        run(out, case)


if __name__ == "__main__":
    main()
