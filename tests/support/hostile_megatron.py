"""Save folders of Megatron that are damaged, hostile, or merely odd, made from a seed.

Each maker gets an empty folder, in which the run's data lie under `data/`, and a random generator; it returns the path
that an audit is asked for. Checkpoints are written as torch writes them: a zip archive with one pickle.
"""

import argparse
import json
import os
import pickle
import random
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "audit" / "megatron_cases" / "args-file-edited" / "data"
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


def truncated(root: Path, rng: random.Random) -> Path:
    raw = whole(root)
    (root / "ckpt" / FILE).write_bytes(raw[: rng.randrange(len(raw))])
    return root / "ckpt"


def garbled(root: Path, rng: random.Random) -> Path:
    raw = bytearray(whole(root))
    for _ in range(rng.choice([1, 3, 30, 300])):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    (root / "ckpt" / FILE).write_bytes(raw)
    return root / "ckpt"


def garbled_pickle(root: Path, rng: random.Random) -> Path:
    write(root)
    raw = bytearray(pickle.dumps({"args": argparse.Namespace(**SAID), "iteration": 10}, rng.choice([0, 2, 4])))
    for _ in range(rng.choice([1, 2, 8, 40])):
        if rng.random() < 0.5:
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        else:
            place = rng.randrange(len(raw))
            raw[place:place] = rng.randbytes(rng.randrange(1, 6))
    write_zip(root / "ckpt" / FILE, bytes(raw))
    return root / "ckpt"


def random_program(root: Path, rng: random.Random) -> Path:
    write(root)
    operations = [
        b"(", b".", b"0", b"1", b"2", b"]", b"}", b")", b"\x85", b"\x86", b"\x87", b"t", b"l", b"d", b"e", b"a", b"s",
        b"u", b"\x8f", b"\x90", b"\x91", b"\x94", b"N", b"K\x01", b"K\x07", b"X\x01\x00\x00\x00a", b"h\x00", b"h\x01",
        b"q\x00", b"q\x01", b"ccollections\nOrderedDict\n", b"cos\nsystem\n", b"c__builtin__\nset\n", b"R", b"\x81",
        b"b", b"Q", b"o", b"\x92", b"\x93", b"iargparse\nNamespace\n", b"P1\n", b"\x88", b"C\x02ab",
        b"G" + struct.pack(">d", 1.5),
    ]  # fmt: skip
    program = b"\x80\x02" + b"".join(rng.choices(operations, k=rng.choice([5, 50, 5000]))) + b"."
    write_zip(root / "ckpt" / FILE, program)
    return root / "ckpt"


def huge_claim(root: Path, rng: random.Random) -> Path:
    write(root)
    huge = rng.choice([2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1])
    short = min(huge, 2**32 - 1)
    program = rng.choice(
        [
            b"\x8d" + struct.pack("<Q", huge),
            b"\x8e" + struct.pack("<Q", huge),
            b"\x96" + struct.pack("<Q", huge),
            b"X" + struct.pack("<I", short),
            b"B" + struct.pack("<I", short),
            b"T" + struct.pack("<i", 2**31 - 1),
            b"\x8b" + struct.pack("<i", 2**31 - 1),
            b"}r" + struct.pack("<I", short) + b".",
            b"\x95" + struct.pack("<Q", huge) + b"N.",
            b"}j" + struct.pack("<I", short),
            b"I" + b"9" * 10_000 + b"\n.",
            b"L" + b"9" * 10_000 + b"L\n.",
            b"\x8a\xff" + b"\x7f" * 255 + b".",
        ]
    )
    if rng.random() < 0.5:
        write_zip(root / "ckpt" / FILE, b"\x80\x04" + program)
    else:  # the format before zip
        (root / "ckpt" / FILE).write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, 2) + b"\x80\x04" + program)
    return root / "ckpt"


def deep_key(root: Path, rng: random.Random) -> Path:
    write(root)
    code = b")q\x00"
    for level in range(rng.randrange(5, 200)):
        code += b"0h" + bytes([level]) + b"h" + bytes([level]) + b"\x86q" + bytes([level + 1])
    write_zip(root / "ckpt" / FILE, rng.choice([b"}" + code + b"K\x01s.", b"\x80\x04\x8f(" + code + b"\x90."]))
    return root / "ckpt"


def deep_value(root: Path, rng: random.Random) -> Path:
    depth = rng.choice([100, 5_000, 200_000])
    way = rng.choice([b"\x85", b"0](h\x00e", b"(ll"[:1]])
    deep = {b"\x85": b")" + b"\x85" * depth, b"(": b"(" * depth + b"l" * depth}.get(
        way, b"]" + b"(l" * min(depth, 5000)
    )
    name = rng.choice(sorted(SAID)).encode()
    program = b"\x80\x02}(X\x04\x00\x00\x00args"
    program += b"cargparse\nNamespace\n)\x81}(X" + struct.pack("<I", len(name)) + name + deep + b"ub"
    program += b"X\x09\x00\x00\x00iterationK\x0au."
    write_zip(root / "ckpt" / FILE, program)
    return root / "ckpt"


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


def strange_archive(root: Path, rng: random.Random) -> Path:
    write(root)
    file, raw = root / "ckpt" / FILE, pickle.dumps({"args": argparse.Namespace(**SAID), "iteration": 10}, 2)
    kind = rng.randrange(5)
    if kind == 0:
        write_zip(file, b"N0" * 3_000_000 + b"N.", compression=zipfile.ZIP_DEFLATED)
    elif kind == 1:
        with zipfile.ZipFile(file, "w") as archive:
            for number in range(3):
                archive.writestr(f"{number}/data.pkl", raw)
    elif kind == 2:
        write_zip(file, raw, rng.choice(["other.pkl", "../data.pkl", "/data.pkl", "data.pkl/"]))
    elif kind == 3:  # another way of compression, or encrypted
        made = bytearray(write_zip(file, raw).read_bytes())
        place = made.rindex(b"PK\x01\x02", 0, made.index(b"archive/data.pkl", made.index(b"PK\x01\x02")))
        made[place + rng.choice([8, 10])] = rng.choice([1, 77])
        file.write_bytes(made)
    else:
        with zipfile.ZipFile(file, "w") as archive:
            for number in range(5_000):
                archive.writestr(f"archive/data/{number}", b"")
            archive.writestr("archive/data.pkl", raw)
    return root / "ckpt"


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
