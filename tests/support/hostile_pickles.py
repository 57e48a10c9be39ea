"""Checkpoints whose archive or pickle is damaged, or is a program that would take forever."""

import argparse
import pickle
import random
import struct
import zipfile
from pathlib import Path

from hostile_checkpoint import FILE, SAID, whole, write, write_zip


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
