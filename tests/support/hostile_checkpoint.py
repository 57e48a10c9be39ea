"""Checkpoints of Megatron with any value in any place, for hostile folders.

Checkpoints are written as torch writes them: a zip archive with one pickle.
"""

import argparse
import pickle
import random
import zipfile
from pathlib import Path
from typing import Any

SAID = {
    "data_path": ["0.5", "data/wiki", "0.5", "data/books"], "split": "1", "seed": 1234, "seq_length": 16,
    "micro_batch_size": 1, "global_batch_size": 8, "train_samples": 300, "consumed_train_samples": 80, "load": "ckpt",
    "save": "ckpt", "mid_level_dataset_surplus": 0.005, "dataloader_type": "single", "save_interval": 2,
    "data_cache_path": None, "train_iters": None, "rampup_batch_size": None, "iterations_to_skip": [],
    "step_batch_size_schedule": None, "data_args_path": None, "per_split_data_args_path": None, "finetune": False,
    "add_extra_token_to_sequence": True, "train_data_path": None, "model_type": None, "pretrained_checkpoint": None,
    "train_weighted_split_paths": None, "tokenizer_type": "NullTokenizer", "renormalize_blend_weights": False,
    "train_data_exact_num_epochs": None, "fim_rate": 0, "override_ckpt_iteration": None, "vocab_file": None,
}  # fmt: skip
FILE = "iter_0000010/mp_rank_00/model_optim_rng.pt"


class Named:
    """An object with attributes that can be a key."""

    def __init__(self, **named: Any) -> None:
        self.__dict__.update(named)


def cycle() -> list[Any]:
    held: list[Any] = []
    held.append({"again": held, "and": (held,)})
    return held


def nested(depth: int) -> Any:
    held: Any = 0
    for number in range(depth):
        held = [held] if number % 2 else {"x": held}
    return held


def doubled(depth: int, leaf: Any = 1) -> Any:
    held = leaf
    for _ in range(depth):
        held = [held, held]
    return held


def odd_value(rng: random.Random) -> Any:
    return rng.choice(
        [
            None,
            True,
            0,
            -1,
            -(10**12),
            1,
            2**31,
            2**63,
            10**17,
            2**500,
            float("nan"),
            float("inf"),
            -0.0,
            1e308,
            5e-324,
            "",
            " ",
            "0",
            "-3",
            "1e9",
            "nan",
            "9" * 5000,
            "x" * 5000,
            "a\0b",
            "\ud800",
            "../" * 900,
            "%s%n{0}",
            "é" * 300,
            "\x1b[31m",
            "[/red]",
            b"",
            b"\xff" * 40,
            [],
            [[]],
            {},
            {"enabled": True},
            (),
            ((),),
            set(),
            [None],
            ["a", 1],
            ["nan", "data/wiki"],
            ["1", "data/wiki", "1"],
            ["-1", "data/wiki"],
            ["0", "data/wiki", "0", "data/books"],
            ["1e400", "data/wiki"],
            ["2", "2", "0"],
            ["2", "2"],
            [10**9] * 3,
            "0:1 5:2",
            "0:0",
            ":",
            "1,2,3,4,5",
            "1,x",
            cycle(),
            nested(40),
            doubled(20, "x"),
            range(5),
            3 + 4j,
            ("data/wiki",) * 3,
            "data/wiki",
            "/dev/zero",
            "data",
            Path("data/wiki"),
            Ellipsis,
        ]
    )


def write_zip(path: Path, raw: bytes, name: str = "archive/data.pkl", **how: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", **how) as archive:
        archive.writestr(name, raw)
        archive.writestr("archive/version", "3")
    return path


def write(
    root: Path, *, iteration: Any = 10, consumed: Any = 80, file: str = FILE, held: Any = None, **changes: Any
) -> Path:
    said = SAID | {"consumed_train_samples": consumed} | changes
    state = {"args": argparse.Namespace(**said), "iteration": iteration, "model": {"decoder.layers.0.x": 0}}
    write_zip(root / "ckpt" / file, pickle.dumps(state | (held or {}), 2))
    (root / "ckpt" / "latest_checkpointed_iteration.txt").write_text("10")
    return root / "ckpt"


def whole(root: Path) -> bytes:
    write(root)
    return (root / "ckpt" / FILE).read_bytes()
