"""Checkpoints whose pickles ask for more work than their bytes."""

import pickle
import zipfile
from pathlib import Path

import pytest

from treering.audit.megatron.pickled import read_saved
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


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\x80\x02}" + doubled(60) + b"K\x01s.", "named again and again, more than 10,000,000 items"),
        (b"\x80\x02}(" + doubled(60) + b"K\x01u.", "named again and again"),
        (b"\x80\x04\x8f(" + doubled(60) + b"\x90.", "named again and again"),
        (b"\x80\x04(" + doubled(60) + b"\x91.", "named again and again"),
        (b"\x80\x02" + doubled(60) + b"0(h\x3cK\x01d.", "named again and again"),
        (b"\x80\x02}" + b")" + b"\x85" * 1_000_000 + b"K\x01s.", "tuples within tuples, more than 100 levels"),
        (
            b"\x80\x02](" + b"K\x01" * 9000 + b"eq\x00" + b"0c__builtin__\nfrozenset\nh\x00\x85R" * 9000 + b".",
            "named again",
        ),
        (b"\x80\x02}", "EOFError"),
        (b"\x80\x02X\xff\xff\xff\x7fa.", "cannot be read"),
        (b"\x80\x04\x8e\xff\xff\xff\xff\xff\x00\x00\x00a.", "cannot be read"),
        (b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00exit\x85R.", "found system, expected the dictionary"),
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
