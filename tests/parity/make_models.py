"""Tiny random models, made with mlx-lm's own classes, for the parity tests.

    make_models.py OUT [NAME ...]

writes one Hugging Face folder OUT/NAME for each row of VARIANTS (or for those
named). Every parameter is drawn anew, norms and biases too: mlx-lm starts norms
at one and some biases at zero, which hides mistakes. The seed is the row's
name, so that a folder does not depend on the others.

To cover another architecture, add a row whose config names its model_type.
"""

import importlib
import json
import shutil
import sys
import zlib
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map_with_path

from tiny_tokenizer import VOCABULARY_SIZE, save_tokenizer

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": VOCABULARY_SIZE,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
}


def llama(**changes):
    """LLAMA with changes; None as a change takes the key out."""
    merged = LLAMA | changes
    return {k: v for k, v in merged.items() if k not in changes or v is not None}


def rope(**scaling):
    return llama(rope_scaling=scaling)


def affine(bits, group_size, **modules):
    return {"mode": "affine", "bits": bits, "group_size": group_size} | modules


YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}

# What a row may say beside its config:
#   dtype     of all parameters (norm_dtype: of the norms, where it differs)
#   quantize  the config's "quantization"; modules inside it override, False
#             leaves one alone
#   told      what the folder's config says of the quantization, where that is
#             not `quantize` itself
#   shards    number of files, with an index
#   place     where the text model stands in a larger one: a prefix of names
#   nested    the config sits in text_config, inside one of this model_type
#   extra     names of tensors that a loader must ignore
VARIANTS = {
    "llama_gqa": {"config": llama()},
    "llama_mha": {"config": llama(num_key_value_heads=4)},
    "llama_mha_by_default": {"config": llama(num_key_value_heads=None)},
    "llama_mqa": {"config": llama(num_key_value_heads=1)},
    "llama_one_layer": {"config": llama(num_hidden_layers=1)},
    "llama_five_layers": {"config": llama(num_hidden_layers=5)},
    "llama_head_dim_wide": {"config": llama(head_dim=48)},
    "llama_head_dim_narrow": {"config": llama(head_dim=20)},
    "llama_head_dim_derived": {"config": llama(head_dim=None)},
    "llama_attention_bias": {"config": llama(attention_bias=True)},
    "llama_mlp_bias": {"config": llama(mlp_bias=True)},
    "llama_all_biases": {"config": llama(attention_bias=True, mlp_bias=True)},
    "llama_tied": {"config": llama(tie_word_embeddings=True)},
    "llama_tied_extras": {
        "config": llama(tie_word_embeddings=True),
        "extra": [
            "lm_head.weight",
            "model.layers.0.self_attn.rotary_emb.inv_freq",
        ],
    },
    "llama_epsilon": {"config": llama(rms_norm_eps=0.1)},
    "llama_odd_sizes": {
        "config": llama(
            hidden_size=72,
            intermediate_size=91,
            num_attention_heads=6,
            num_key_value_heads=3,
            head_dim=10,
            vocab_size=VOCABULARY_SIZE + 11,
        )
    },
    "llama_rope_traditional": {"config": llama(rope_traditional=True)},
    "llama_rope_theta": {"config": llama(rope_theta=1000000)},
    "llama_rope_default": {"config": rope(rope_type="default")},
    "llama_rope_linear": {"config": rope(rope_type="linear", factor=3.0)},
    "llama_rope_linear_type": {"config": rope(type="linear", factor=2.5)},
    "llama_rope_llama3": {
        "config": rope(
            rope_type="llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=256,
        )
    },
    "llama_rope_llama3_defaults": {"config": rope(rope_type="llama3", factor=32.0)},
    "llama_rope_yarn": {"config": rope(**YARN)},
    "llama_rope_yarn_mscale": {
        "config": rope(**YARN, mscale=0.8, mscale_all_dim=0.5, beta_fast=16, beta_slow=2)
    },
    "llama_rope_yarn_traditional": {
        "config": rope(**YARN, mscale=1.0, mscale_all_dim=1.0) | {"rope_traditional": True}
    },
    "mistral": {
        "config": llama(model_type="mistral", architectures=["MistralForCausalLM"])
    },
    "llama_nested": {"config": llama(), "nested": "llama"},
    "mistral3": {
        "config": llama(model_type="mistral"),
        "nested": "mistral3",
        "place": "language_model.",
        "extra": [
            "vision_tower.patch_embed.weight",
            "multi_modal_projector.linear_1.weight",
        ],
    },
    "llama_nested_placed": {
        "config": llama(),
        "nested": "llama",
        "place": "model.language_model.",
        "extra": ["model.visual.blocks.0.weight", "mtp.norm.weight"],
    },
    "llama_two_shards": {"config": llama(), "shards": 2},
    "llama_five_shards": {"config": llama(attention_bias=True), "shards": 5},
    "llama_bf16": {"config": llama(), "dtype": "bfloat16"},
    "llama_bf16_biases": {
        "config": llama(attention_bias=True, mlp_bias=True, **{"rope_scaling": YARN}),
        "dtype": "bfloat16",
    },
    "llama_bf16_f32_norms": {
        "config": llama(),
        "dtype": "bfloat16",
        "norm_dtype": "float32",
    },
    "llama_f16": {"config": llama(tie_word_embeddings=True), "dtype": "float16"},
    **{
        f"llama_affine_{bits}bit_g{group_size}": {
            "config": llama(),
            "quantize": affine(bits, group_size),
        }
        for bits in (2, 3, 4, 5, 6, 8)
        for group_size in (32, 64, 128)
    },
    "llama_affine_biases": {
        "config": llama(attention_bias=True, mlp_bias=True),
        "quantize": affine(4, 64),
    },
    "llama_affine_tied": {
        "config": llama(tie_word_embeddings=True),
        "quantize": affine(6, 64),
    },
    "llama_affine_bf16": {
        "config": llama(),
        "dtype": "bfloat16",
        "quantize": affine(4, 64),
    },
    "llama_affine_f16": {
        "config": llama(tie_word_embeddings=True),
        "dtype": "float16",
        "quantize": affine(4, 32),
    },
    "llama_affine_shards": {
        "config": llama(),
        "quantize": affine(4, 64),
        "shards": 3,
    },
    "llama_affine_overrides": {
        "config": llama(),
        "quantize": affine(
            4,
            64,
            **{
                "model.embed_tokens": {"bits": 8, "group_size": 32},
                "model.layers.0.mlp.down_proj": {"bits": 6, "group_size": 128},
                "model.layers.1.self_attn.v_proj": {"bits": 8, "group_size": 64},
                "lm_head": {"bits": 3, "group_size": 64},
            },
        ),
    },
    "llama_affine_false": {
        "config": llama(),
        "quantize": affine(
            4,
            64,
            **{
                "model.embed_tokens": False,
                "model.layers.0.self_attn.o_proj": False,
                "lm_head": False,
            },
        ),
    },
    "llama_affine_file_spelling": {
        # Weights and overrides named as in the file of a vision model's export.
        "config": llama(tie_word_embeddings=True),
        "nested": "llama",
        "place": "language_model.",
        "quantize": affine(
            4,
            64,
            **{
                "model.embed_tokens": {"bits": 8, "group_size": 64},
                "model.layers.1.mlp.gate_proj": False,
            },
        ),
        "told": affine(
            4,
            64,
            **{
                "language_model.model.embed_tokens": {"bits": 8, "group_size": 64},
                "language_model.model.layers.1.mlp.gate_proj": False,
            },
        ),
    },
    "llama_affine_other_file_spelling": {
        "config": llama(),
        "nested": "llama",
        "place": "model.language_model.",
        "quantize": affine(
            4, 64, **{"model.layers.0.mlp.down_proj": {"bits": 6, "group_size": 64}}
        ),
        "told": affine(
            4,
            64,
            **{
                "model.language_model.layers.0.mlp.down_proj": {
                    "bits": 6,
                    "group_size": 64,
                }
            },
        ),
    },
    "llama_affine_module_spelling": {
        # Placed the same way, the overrides named as the modules.
        "config": llama(tie_word_embeddings=True),
        "nested": "llama",
        "place": "language_model.",
        "quantize": affine(
            4,
            64,
            **{
                "model.embed_tokens": {"bits": 8, "group_size": 64},
                "model.layers.1.mlp.gate_proj": False,
            },
        ),
    },
    "llama_affine_bits_untold": {
        "config": llama(),
        "quantize": affine(5, 64, **{"model.embed_tokens": {"bits": 3, "group_size": 64}}),
        "told": {"group_size": 64},
    },
    "llama_affine_untold": {
        "config": llama(),
        "quantize": affine(3, 32),
        "told": None,
    },
    "llama_mxfp4": {
        "config": llama(),
        "quantize": {"mode": "mxfp4", "bits": 4, "group_size": 32},
    },
    "llama_mxfp4_tied_bf16": {
        "config": llama(tie_word_embeddings=True),
        "dtype": "bfloat16",
        "quantize": {"mode": "mxfp4", "bits": 4, "group_size": 32},
    },
    "llama_mxfp8": {
        "config": llama(attention_bias=True),
        "quantize": {"mode": "mxfp8", "bits": 8, "group_size": 32},
    },
    "llama_nvfp4": {
        "config": llama(),
        "quantize": {"mode": "nvfp4", "bits": 4, "group_size": 16},
    },
    "llama_nvfp4_f32_embedding": {
        # Activations stay f32 from end to end.
        "config": llama(),
        "quantize": {
            "mode": "nvfp4",
            "bits": 4,
            "group_size": 16,
            "model.embed_tokens": False,
        },
    },
    "llama_mixed_modes": {
        "config": llama(),
        "quantize": {
            "mode": "mxfp4",
            "bits": 4,
            "group_size": 32,
            "model.embed_tokens": {"mode": "affine", "bits": 8, "group_size": 64},
            "lm_head": {"mode": "affine", "bits": 6, "group_size": 64},
        },
    },
}


def build(name, row):
    """The row's model, its parameters drawn from a seed that is its name."""
    mx.random.seed(zlib.crc32(name.encode()))
    config = row["config"]
    module = config["model_type"]
    module = importlib.import_module(
        "mlx_lm.models." + {"mistral": "llama"}.get(module, module)
    )
    model = module.Model(module.ModelArgs.from_dict(config))
    dtype = row.get("dtype", "float32")
    norm_dtype = row.get("norm_dtype", dtype)
    # A strong embedding that is also the head repeats the last token for ever.
    embedding_scale = 0.1 if config.get("tie_word_embeddings") else 1.0

    def draw(path, parameter):
        noise = mx.random.normal(parameter.shape)
        if "norm" in path:
            drawn, kind = 1 + 0.3 * noise, norm_dtype
        elif parameter.ndim == 1:
            drawn, kind = 0.2 * noise, dtype
        elif "embed" in path:
            drawn, kind = embedding_scale * noise, dtype
        else:
            drawn, kind = 1.5 * noise / parameter.shape[-1] ** 0.5, dtype
        return drawn.astype(getattr(mx, kind))

    model.update(tree_map_with_path(draw, model.parameters()))
    if quantization := row.get("quantize"):
        settings = ("mode", "bits", "group_size")
        default = {k: quantization[k] for k in settings}

        def choose(path, module):
            if not hasattr(module, "to_quantized"):
                return False
            return quantization.get(path, default)

        nn.quantize(model, **default, class_predicate=choose)
    mx.eval(model.parameters())
    return model


def name_in_file(name, place):
    if place == "model.language_model.":
        return place + name.removeprefix("model.") if name.startswith("model.") else name
    return place + name if name.startswith(("model.", "lm_head.")) else name


def save_weights(folder, row, model):
    tensors = dict(tree_flatten(model.parameters()))
    place = row.get("place", "")
    tensors = {name_in_file(name, place): tensor for name, tensor in tensors.items()}
    for extra in row.get("extra", []):
        tensors[extra] = mx.random.normal((8, 4))
    names = sorted(tensors)
    shards = row.get("shards", 1)
    weight_map = {}
    for index in range(shards):
        file = (
            "model.safetensors"
            if shards == 1
            else f"model-{index + 1:05}-of-{shards:05}.safetensors"
        )
        part = names[index::shards]
        weight_map |= dict.fromkeys(part, file)
        mx.save_safetensors(
            str(folder / file), {n: tensors[n] for n in part}, metadata={"format": "mlx"}
        )
    if shards > 1:
        total = sum(tensor.nbytes for tensor in tensors.values())
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        save_json(folder / "model.safetensors.index.json", index)


def save_json(path, value):
    path.write_text(json.dumps(value, indent=1))


def save(out, name, row):
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_weights(folder, row, build(name, row))
    config = dict(row["config"])
    if row.get("nested"):
        config = {"model_type": row["nested"], "text_config": config}
    if told := row.get("told", row.get("quantize")):
        config["quantization"] = config["quantization_config"] = told
    save_json(folder / "config.json", config)
    save_tokenizer(folder)


def main():
    out, names = Path(sys.argv[1]), sys.argv[2:] or list(VARIANTS)
    for name in names:
        save(out, name, VARIANTS[name])


if __name__ == "__main__":
    main()
