"""Five hundred malformed configs, made from a right one with a seed: each ends in an error of ours."""

import copy
import random
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
import yaml
from tiny_experiment import BASE

from treering.config.load import load_experiment
from treering.config.resolved_blend import declared_blend
from treering.data.blend.continuation import resolve_run
from treering.data.blend.shares import component_shares
from treering.errors import TreeringError

TEXT = yaml.safe_dump(BASE, sort_keys=False)
CONFIGS = 500
SECONDS = 60
"""After which a config hangs."""

VALUES = [
    None, True, False, 0, -1, 1, 2.5, -0.0, 10**18, 2**63 - 1, 2**63, 10**400, 1e308, -1e308, float("nan"),
    float("inf"), float("-inf"), "", " ", "text", "0", "-1", "1e999", "9" * 5000, "nan", "\x1b[31m", "\u202e",
    "x" * 70_000, [], [[]], [None], {}, {"a": {}}, {"": 1}, [1, "a", {}], {"corpus": []},
]  # fmt: skip
"""What a value is replaced by."""

TEXTS = [
    "!!python/object/apply:os.system [true]", "!!binary aGVsbG8=", "!!set {a, b}", "!!omap [a: 1]", "!x {a: 1}",
    "2024-01-01", "2024-13-45", "12:30:45", "0o17", "0x_", "1_000", "&a [*a]", "*nothing", "&a {<<: *a}", "? x",
    "[" * 3000, "{" * 3000, "- " * 300, "a: " * 100, "|", ">", "%TAG", "@", "`", "'", '"', "\t- x", "---", "...", "<<",
    "!!int x", "!!float x", "!!timestamp x", "!!null x", "!!bool maybe", "!!merge x", "{a: 1, a: 2}", "{[1]: 2}",
    "{? {a: 1} : 2}", "{1: 2}", "{null: 1}", "9" * 6000, "1e" + "9" * 300, "0b" + "1" * 70_000, ".inf", "-.nan", "~",
    "=",
]  # fmt: skip
"""What a value of the text is replaced by."""

BYTES = [
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\xc3\x28",
    b"\x1b[2J",
    b"\t",
    b"\r",
    b"\xe2\x80\xae",
    b": ",
    b"- ",
    b"&",
    b"*",
]


def bomb(levels, width):
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


def merges(levels):
    lines = ["m0: &m0 {k0: 1}"]
    lines += [f"m{n}: &m{n} {{<<: [*m{n - 1}, *m{n - 1}], k{n}: 1}}" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


def places(value, path=()):
    yield path
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in below:
        yield from places(child, (*path, key))


def other_values(draw):
    """Values of other types; keys lost, added and renamed."""
    document = copy.deepcopy(BASE)
    for _ in range(draw.randint(1, 4)):
        path = draw.choice([path for path in places(document) if path])
        target = document
        for part in path[:-1]:
            target = target[part]
        if draw.random() < 0.8 or not isinstance(target, dict):
            target[path[-1]] = copy.deepcopy(draw.choice(VALUES))
        else:
            target[draw.choice(["colour", "Seed", "num_layer", "\x1b", "x" * 5000])] = target.pop(path[-1])
    return yaml.safe_dump(document, sort_keys=False).encode()


def other_yaml(draw):
    """A value that is something else in YAML."""
    lines = TEXT.splitlines()
    number = draw.randrange(len(lines))
    lines[number] = lines[number].partition(":")[0] + ": " + draw.choice(TEXTS)
    return "\n".join(lines).encode()


def other_bytes(draw):
    """Bytes that are no text, or that mean something."""
    content = bytearray(TEXT.encode())
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(content))
        content[at : at + draw.randint(0, 3)] = draw.choice(BYTES)
    return bytes(content)


def other_lines(draw):
    """Lines lost, doubled, swapped, indented otherwise; several documents."""
    lines = TEXT.splitlines()
    for _ in range(draw.randint(1, 5)):
        at = draw.randrange(len(lines))
        line = lines[at]
        lines[at : at + 1] = draw.choice(
            [
                [],
                [line, draw.choice(lines)],
                [draw.choice([" ", "   ", "\t"]) + line],
                [line.strip()],
                [draw.choice(["---", "...", "- x", "? y", "<<: *a", "&a"]), line],
            ]
        )
    return "\n".join(lines).encode()


def endless(draw):
    """Aliases that multiply, depth, length, emptiness."""
    nothing = ["", "\n", "~", "[]", "{}", "x", "- x", "---\n---\n", "\ufeff", "!!set {}", "? x"]
    made = [
        bomb(draw.randint(5, 40), draw.randint(2, 9)),
        merges(draw.randint(5, 60)),
        "a: " * draw.randint(40, 400) + "1",
        "[" * draw.randint(1, 100_000),
        "- " * draw.randint(1, 20_000) + "x",
        "x: [" + "a, " * draw.randint(10, 150_000) + "]",
        "".join(f"k{n}: {n}\n" for n in range(draw.randint(1, 9_000))),
        "#" * draw.randint(1, 600_000),
        "x: '" + "y\n" * draw.randint(1, 200_000) + "'",
        draw.choice(nothing),
    ]
    return draw.choice(made).encode()


KINDS = (*(other_values, other_yaml) * 5, *(other_bytes, other_lines) * 3, endless)


@contextmanager
def bounded(seconds):
    def stop(_number, _frame):
        raise TimeoutError

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def plan(file):
    """What `treering plan` computes."""
    experiment = load_experiment(file)
    resolved = resolve_run(experiment, declared_blend(experiment), str(file), runs=file.parent)
    component_shares(resolved.blend, 0, resolved.schedule.num_samples)
    return resolved.schedule.milestones()


@pytest.mark.slow
def test_each_ends_in_an_error_of_ours(tmp_path):
    """No traceback, no hang, no endless text."""
    draw, file = random.Random(20261128), tmp_path / "malformed.yaml"
    refused, faults = 0, []
    for number in range(CONFIGS):
        content = draw.choice(KINDS)(draw)
        file.write_bytes(content)
        text = ""
        try:
            with bounded(SECONDS):
                plan(file)
        except TreeringError as error:
            refused, text = refused + 1, str(error)
        except Exception as error:  # noqa: BLE001 - what must not happen, whatever it is
            faults.append((number, repr(error)[:300], content[:300]))
        assert len(text) < 50_000
    assert faults == []
    assert refused > 0.9 * CONFIGS


@pytest.mark.slow
@pytest.mark.parametrize("text", ["seed: &a [*a]", "model: {layers: 2}\nseed: x", "", "[" * 500, "\x00"])
def test_the_command_ends_with_its_text_and_code_2(tmp_path, text):
    file = tmp_path / "malformed.yaml"
    file.write_text(text)
    ended = subprocess.run(
        [sys.executable, "-c", "from treering.cli import main; main()", "plan", str(file)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"treering: {file}")
    assert "Traceback" not in ended.stderr
