"""Pickles of checkpoints run nothing and change nothing, and ask for no more work than their bytes."""

import os
import pickle
import zipfile
from pathlib import Path

import megatron_run
import pytest
from megatron_run import BLEND, STEPS

from treering.audit.megatron.pickled import read_saved
from treering.audit.megatron.run import AuditedRun
from treering.errors import EvidenceError


def saved(path: Path, raw: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", raw)
    return path


def doubled(levels: int) -> bytes:
    """Code for a tuple that holds one tuple twice, and so on."""
    code = b")q\x00"
    for level in range(levels):
        code += b"0h" + bytes([level]) + b"h" + bytes([level]) + b"\x86q" + bytes([level + 1])
    return code


@pytest.mark.slow
@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\x80\x02}" + doubled(60) + b"K\x01s.", "a key of tuples that are nested deeper than 4 levels"),
        (b"\x80\x02}(" + doubled(60) + b"K\x01u.", "nested deeper than 4 levels"),
        (b"\x80\x04\x8f(" + doubled(60) + b"\x90.", "nested deeper than 4 levels"),
        (b"\x80\x04(" + doubled(60) + b"\x91.", "nested deeper than 4 levels"),
        (b"\x80\x02" + doubled(60) + b"0(h\x3cK\x01d.", "nested deeper than 4 levels"),
        (b"\x80\x02}" + b")" + b"\x85" * 200_000 + b"K\x01s.", "nested deeper than 4 levels"),
        (b"\x80\x02}(" + b"K\x01" * 65 + b"tK\x01s.", "a key of more than 64 values"),
        (
            b"\x80\x02](" + b"K\x01" * 9000 + b"eq\x00" + b"0c__builtin__\nfrozenset\nh\x00\x85R" * 9000 + b".",
            "more than 2,500,000 operations and copied items",
        ),
        (b"\x80\x02}" + b"N0" * 1_300_000 + b".", "more than 2,500,000 operations"),
        (b"\x80\x02\x8a\x48" + b"\x01" * 72 + b".", "a number of 569 bits, expected at most 512"),
        (b"I" + b"9" * 5000 + b"\n.", "cannot be read"),
        (b"\x80\x02}r\xff\xff\xff\x7fu.", "damaged pickle"),  # a place of memory far away, and no mark
        (b"\x80\x02\x82\x01.", "the operation EXT1"),
        (b"\x80\x04\x8f](K\x01ea\x90.", "damaged pickle"),
        (b"\x80\x02}]K\x01s.", "damaged pickle"),
        (b"\x80\x02}", "cannot be read"),
        (b"\x80\x02X\xff\xff\xff\x7fa.", "cannot be read"),
        (b"\x80\x04\x8e\xff\xff\xff\xff\xff\x00\x00\x00a.", "cannot be read"),
        (b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00exit\x85R.", "found Inert, expected the dictionary"),
    ],
)
def test_a_hostile_pickle_ends_soon_with_an_error(tmp_path: Path, raw: bytes, message: str) -> None:
    with pytest.raises(EvidenceError, match=message):
        read_saved(saved(tmp_path / "model.pt", raw))


def test_what_a_checkpoint_has_is_read_as_before(tmp_path: Path) -> None:
    inner = ("a", 1, (2.5, None, ("b", (3,))))
    held = {"key": inner, inner: {1, 2}, "again": [inner] * 3, frozenset({"x"}): {"deep": [[[{}]]]}}
    for protocol in (2, 4):
        assert read_saved(saved(tmp_path / "model.pt", pickle.dumps(held, protocol))) == held


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder from which the run was launched."""
    pytest.importorskip("megatron.core")
    monkeypatch.chdir(tmp_path)
    megatron_run.write_data(tmp_path)
    return tmp_path


class Called:
    """An object whose pickle calls a function."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("form", ["zip", "legacy"])
def test_a_pickle_runs_nothing(folder, form):
    marks = [folder / f"mark{number}" for number in range(4)]
    args = megatron_run.arguments(data_path=BLEND, train_samples=80, split="100")
    args.hidden = Called(os.system, f"touch {marks[0]}")
    state = {
        "hook": Called(eval, f"open({str(marks[1])!r}, 'w')"),
        "popen": Called(os.popen, f"touch {marks[2]}"),
        "write": Called(exec, f"open({str(marks[3])!r}, 'w')"),
    }
    place = megatron_run.save(folder / "ckpt", args, STEPS, form, state=state)
    held = read_saved(place / "mp_rank_00" / "model_optim_rng.pt")
    assert repr(held["hook"]) == "<__builtin__.eval>"
    assert repr(held["args"].state["hidden"]) == "<posix.system>"
    assert AuditedRun.open(folder / "ckpt").iteration == STEPS
    assert not any(mark.exists() for mark in marks)


def test_a_pickle_cannot_change_what_it_is_built_from(tmp_path):
    for program in (
        b"ccollections\nOrderedDict\n(N(dX\x04\x00\x00\x00keys\x94K\x01sttb.",  # sets an attribute of a class
        b"cbuiltins\nset\n(N(dX\x03\x00\x00\x00addK\x01sttb.",
        b"cos\nsystem\nX\x01\x00\x00\x00xb.",
        b"K\x01.",
        b"}K\x01",
    ):
        path = tmp_path / "x.pt"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x/data.pkl", program)
        with pytest.raises(EvidenceError, match=r"cannot be read|found int, expected the dictionary"):
            read_saved(path)
    assert "keys" in dir({})


def test_tensors_are_not_read(folder):
    args = megatron_run.arguments(data_path=BLEND, train_samples=80, split="100")
    file = megatron_run.save(folder / "ckpt", args, STEPS) / "mp_rank_00" / "model_optim_rng.pt"
    with zipfile.ZipFile(file) as archive:
        kept = {name: archive.read(name) for name in archive.namelist() if "/data/" not in name}
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in kept.items():
            archive.writestr(name, content)
    assert AuditedRun.open(folder / "ckpt").iteration == STEPS
