"""Save folders of Megatron that are damaged, hostile, or merely odd, made from a seed.

Each maker gets an empty folder, in which the run's data are under `data/`, and a random generator. It returns the path
that an audit is asked for.
"""

import argparse
import json
import os
import pickle
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostile_checkpoint import FILE, SAID, Named, odd_value, write, write_zip
from hostile_pickles import (
    deep_key,
    deep_value,
    garbled,
    garbled_pickle,
    huge_claim,
    random_program,
    strange_archive,
    truncated,
)

DATA = Path(__file__).parents[1] / "audit" / "megatron_cases" / "args-file-edited" / "data"


def odd_arguments(root: Path, rng: random.Random) -> Path:
    names = rng.sample(sorted(SAID), rng.choice([1, 1, 2, 5, 20]))
    return write(root, **{name: odd_value(rng) for name in names})


def odd_iteration(root: Path, rng: random.Random) -> Path:
    return write(root, iteration=odd_value(rng), consumed=odd_value(rng))


def odd_state(root: Path, rng: random.Random) -> Path:
    held = {rng.choice(["args", "model", "module", "iteration", "model0"]): odd_value(rng) for _ in range(2)}
    return write(root, held=held)


def unknown_arguments(root: Path, rng: random.Random) -> Path:
    names = [f"{rng.choice(['data', 'shuffle', 'blend', 'x'])}_{number}" for number in range(rng.choice([1, 40]))]
    return write(root, **{name: odd_value(rng) for name in names})


def many_paths(root: Path, rng: random.Random) -> Path:
    count = rng.choice([100_000, 40_000, 300])
    listed = [f"data/p{number}" for number in range(count)] if rng.random() < 0.5 else ["data/wiki"] * count
    if rng.random() < 0.3:
        (root / "blend.txt").write_text(" ".join(listed))
        return write(root, data_path=None, data_args_path="blend.txt")
    return write(root, data_path=listed)


def strange_file(root: Path, rng: random.Random) -> Path:
    """A pipe, a folder, a loop of links, a device, or nothing in a file's place."""
    write(root)
    (root / "blend.txt").write_text("1 data/wiki 2 data/books")
    if rng.random() < 0.5:
        write(root, data_path=None, **{rng.choice(["data_args_path", "per_split_data_args_path"]): "blend.txt"})
    place = root / rng.choice(
        [
            f"ckpt/{FILE}",
            "data/wiki.idx",
            "data/wiki.bin",
            "blend.txt",
            "ckpt/latest_checkpointed_iteration.txt",
            "ckpt/latest",
            "ckpt/iter_0000010",
            "ckpt/iter_0000005",
            "ckpt/iter_0000010/.metadata",
            "megatron-run.yaml",
            "ckpt/iter_0000010/common.pt",
            "data/documents.parquet",
            "data",
        ]
    )
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    kind = rng.randrange(7)
    if kind == 0:
        os.mkfifo(place)
    elif kind == 1:
        place.mkdir()
    elif kind == 2:
        place.symlink_to(place.name)
    elif kind == 3:
        place.symlink_to(rng.choice(["/dev/zero", "/dev/null", "/dev/full", "/dev/random"]))
    elif kind == 4:
        place.write_bytes(b"")
    elif kind == 5:
        place.write_bytes(rng.randbytes(rng.choice([1, 8, 34, 4000])))
        place.chmod(rng.choice([0, 0o600]))
    return root / rng.choice(["ckpt", "ckpt", ".", f"ckpt/{FILE}", place.relative_to(root)])


def strange_tracker(root: Path, rng: random.Random) -> Path:
    write(root)
    text = rng.choice(
        [
            b"",
            b"x",
            b"-1",
            b"0",
            b"9" * 5000,
            b"\xff\xfe",
            b"10\n10",
            b"release",
            b"../../etc",
            b"1e3",
            "\u0661\u0660".encode(),
            b"11",
            b"10" + b" " * 100_000,
            b"\0",
        ]
    )
    for name in rng.sample(["latest_checkpointed_iteration.txt", "latest"], rng.choice([1, 2])):
        (root / "ckpt" / name).write_bytes(text)
    if rng.random() < 0.4:
        (root / "ckpt" / "latest_checkpointed_iteration.txt").unlink(missing_ok=True)
    for name in rng.sample(
        ["iter_", "iter_-1", "iter_" + "9" * 200, "iter_٣", "global_step7", "release", "iter_1x"], 3
    ):
        (root / "ckpt" / name).mkdir()
    return root / "ckpt"


def strange_blend_file(root: Path, rng: random.Random) -> Path:
    name = rng.choice(["data_args_path", "per_split_data_args_path"])
    content = rng.choice(
        [
            b"",
            b"\xff" * 100,
            b"[" * 100_000,
            b'{"train": ' + b"[" * 5000,
            b'{"train": 5}',
            b'{"train": null}',
            b"null",
            b"5",
            b'{"train": [1, 2, 3]}',
            b'{"train": ["1", "data/wiki"]}',
            b"1 data/wiki 2",
            b"\0" * 5000,
            b"1e400 data/wiki",
            b"nan data/wiki",
            b"1 " + b"x" * 20_000,
            b'{"train": ["data/wiki"], "train": []}',
            b"0.5 data/wiki -0.5 data/books",
            ("{" + ",".join(f'"k{i}":1' for i in range(50_000)) + "}").encode(),
        ]
    )
    (root / "blend.txt").write_bytes(content)
    return write(root, data_path=None, **{name: "blend.txt"})


def strange_names(root: Path, rng: random.Random) -> Path:
    name = rng.choice(
        [b"data/w\xff\xfe", b"data/" + b"y" * 200, "data/\u202e\x1b[2J".encode(), b"data/a b", b"data/a=b"]
    )
    for suffix in (b".idx", b".bin"):
        shutil.copyfile(root / f"data/wiki{suffix.decode()}", root / os.fsdecode(name + suffix))
    prefix = rng.choice([os.fsdecode(name), name.decode("utf-8", "replace"), name])
    return write(root, data_path=[prefix])


def strange_index(root: Path, rng: random.Random) -> Path:
    write(root)
    place = root / rng.choice(["data/wiki.idx", "data/books.idx"])
    raw = bytearray(place.read_bytes())
    kind = rng.randrange(4)
    if kind == 0:
        place.write_bytes(raw[: rng.randrange(len(raw))])
    elif kind == 1:
        for _ in range(rng.choice([1, 4, 40])):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        place.write_bytes(raw)
    elif kind == 2:
        raw[rng.choice([18, 26]) :][:8] = struct.pack("<Q", rng.choice([0, 2**31, 2**62, 2**64 - 1]))
        place.write_bytes(raw + rng.randbytes(rng.choice([0, 7, 80])))
    else:
        place.unlink()
    return root / "ckpt"


def history(root: Path, rng: random.Random) -> Path:
    """A save folder of many checkpoints that contradict each other."""
    steps = rng.sample(range(1, 31), rng.choice([3, 8, 20]))
    for step in steps:
        changes: dict[str, Any] = {}
        if rng.random() < 0.4:
            changes["data_path"] = rng.choice([["data/wiki"], ["data/books"], SAID["data_path"]])
        if rng.random() < 0.3:
            changes["global_batch_size"] = rng.choice([4, 8, 12])
        if rng.random() < 0.2:
            changes |= {rng.choice(sorted(SAID)): odd_value(rng)}
        consumed = rng.choice([8 * step] * 4 + [4 * step, rng.randrange(300), None])
        named = rng.choice([step] * 9 + [step + 1])
        write(
            root,
            iteration=step,
            file=f"iter_{named:07d}/mp_rank_00/model_optim_rng.pt",
            **{"consumed": consumed} | changes,
        )
        time = rng.choice([step, rng.randrange(40), 5])
        os.utime(root / "ckpt" / f"iter_{named:07d}" / "mp_rank_00" / "model_optim_rng.pt", (time, time))
    (root / "ckpt" / "latest_checkpointed_iteration.txt").write_text(str(rng.choice(steps)))
    return root / "ckpt"


def sharded(root: Path, rng: random.Random) -> Path:
    write(root)
    shutil.rmtree(root / "ckpt" / "iter_0000010")
    held = {"storage_data": odd_value(rng), "state_dict_metadata": odd_value(rng)}
    if rng.random() < 0.5:
        held["storage_data"] = {Named(fqn="args"): Named(relative_path="x", offset=0, length=2**60)}
        if rng.random() < 0.5:
            (root / "ckpt").joinpath("iter_0000010").mkdir()
            write_zip(root / "ckpt/iter_0000010/x", pickle.dumps(odd_value(rng), 2))
    place = root / "ckpt" / "iter_0000010" / ".metadata"
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(pickle.dumps(argparse.Namespace(**held), 2))
    return root / "ckpt"


def described(root: Path, rng: random.Random) -> Path:
    write(root)
    said = {"checkpoint": "ckpt"} | {
        rng.choice(
            ["data", "seed", "iteration", "checkpoint", "resumed_after", "cache", "lineage", "split", "rampup"]
        ): value
        for value in rng.sample(
            [0, -1, 2**40, "x", "", [], ["a"], {"a": 1}, [{"prefix": "data/wiki"}], True, 7, "\x1b[1m"], 2
        )
    }
    (root / "megatron-run.yaml").write_text(json.dumps(said))
    return root


MAKERS: tuple[Callable[[Path, random.Random], Path], ...] = (
    truncated, garbled, garbled_pickle, garbled_pickle, random_program, huge_claim, deep_key, deep_value, odd_arguments,
    odd_arguments, odd_arguments, odd_iteration, odd_state, unknown_arguments, many_paths, strange_file, strange_file,
    strange_archive, strange_tracker, strange_blend_file, strange_names, strange_index, history, history, sharded,
    described,
)  # fmt: skip


def hostile_folder(root: Path, seed: int) -> Path:
    """Makes the folder of a seed in an empty place; returns the path that an audit is asked for."""
    shutil.copytree(DATA, root / "data")
    return MAKERS[seed % len(MAKERS)](root, random.Random(seed))
