"""A small experiment as an author writes it, for tests that change it."""

import copy

import pytest
import yaml

from treering.config.load import load_experiment
from treering.errors import ConfigError

BASE = {
    "experiment": "tiny",
    "seed": 7,
    "corpora": [
        {"name": "red", "licence": "CC0-1.0", "jsonl": "red.jsonl"},
        {"name": "blue", "licence": "CC0-1.0", "jsonl": "blue.jsonl"},
    ],
    "tokenizer": {"vocabulary_size": 300},
    "blend": {
        "seed": 3,
        "sequence_length": 16,
        "components": [{"corpus": "red", "weight": "0.75"}, {"corpus": "blue", "weight": "0.25"}],
    },
    "model": {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "padded_vocab_size": 320},
    "optimizer": {"peak_learning_rate": 1e-3, "min_learning_rate": 1e-4},
    "schedule": {"train_tokens": 4096, "global_batch_size": 8},
    "parallel": {"micro_batch_size": 2, "data": 2},
    "checkpoint": {"every_steps": 10},
}


def write_experiment(tmp_path, **changes):
    """A config file: BASE with `a__b__0__c=value` set; a value of ... deletes the key."""
    document = copy.deepcopy(BASE)
    for path, value in changes.items():
        *parents, last = [int(part) if part.isdecimal() else part for part in path.split("__")]
        target = document
        for part in parents:
            target = target[part] if isinstance(target, list) else target.setdefault(part, {})
        if value is ...:
            del target[last]
        else:
            target[last] = value
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def config_error(file, *overrides):
    with pytest.raises(ConfigError, match=r"found .*, expected ") as caught:
        load_experiment(file, overrides)
    return caught.value
