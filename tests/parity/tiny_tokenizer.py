"""A byte-level tokenizer of a few hundred tokens for the tiny random models."""

import functools
import json

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY_SIZE = 320

TEXT = """The quick brown fox jumps over the lazy dog while the other animals of the
forest watch from the shade of the trees. Nothing in the water moves, and the thing
that they were waiting for never came. There is a time for everything, they thought,
and another for nothing at all. Where the river bends the stones are worn and round."""


@functools.cache
def make_tokenizer():
    """The tokenizer.json: all bytes, and merges up to the size."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        min_frequency=1,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    assert tokenizer.get_vocab_size() == VOCABULARY_SIZE
    return tokenizer.to_str()


def save_tokenizer(folder):
    (folder / "tokenizer.json").write_text(make_tokenizer())
    config = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
