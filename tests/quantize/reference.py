"""What mlx-lm makes of models.

    reference.py CASES.json

CASES is a list of
    {"source", "target", "options", "modules"}: converts, with convert()'s options and what
        is said of single modules (settings, or false), or null
    {"folder", "ids", "logits"}: writes the logits after all ids as raw little-endian f32

MLX's compile is off: on a CPU it builds other kernels with the system's C++ compiler, so that
the operations would not be the same.
"""

import contextlib
import json
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm.convert import convert
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model


def run_conversion(case):
    options = dict(case["options"])
    if (modules := case["modules"]) is not None:
        # A copy, since the settings are handed on to be changed.
        options["quant_predicate"] = lambda path, _: (
            dict(said) if isinstance(said := modules.get(path, True), dict) else said
        )
    convert(case["source"], case["target"], **options)


def write_logits(case):
    model, _ = load_model(Path(case["folder"]))
    cache, ids = make_prompt_cache(model), mx.array([case["ids"]])
    model(ids[:, :-1], cache=cache)
    # The last id alone, as when generating.
    logits = model(ids[:, -1:], cache=cache)[0, -1].astype(mx.float32)
    Path(case["logits"]).write_bytes(np.array(logits, dtype="<f4").tobytes())


mx.disable_compile()
with contextlib.redirect_stdout(sys.stderr):
    for case in json.loads(Path(sys.argv[1]).read_text()):
        (run_conversion if "target" in case else write_logits)(case)
