"""Gives the tiny test model 152,064 ids, most of them without text: wide_model.py TINY OUT"""

import json
import shutil
import sys
from pathlib import Path

import mlx.core as mx

VOCABULARY = 152064

tiny, out = map(Path, sys.argv[1:])
shutil.rmtree(out, ignore_errors=True)
shutil.copytree(tiny, out)
config = json.loads((out / "config.json").read_text())
config["vocab_size"] = VOCABULARY
(out / "config.json").write_text(json.dumps(config))
tensors = mx.load(str(out / "model.safetensors"))
for seed, name in enumerate(("model.embed_tokens.weight", "lm_head.weight")):
    if name in tensors:
        shape = (VOCABULARY, tensors[name].shape[1])
        tensors[name] = mx.random.normal(shape, scale=0.5, key=mx.random.key(seed))
mx.eval(tensors)
mx.save_safetensors(str(out / "model.safetensors"), tensors, {"format": "pt"})
