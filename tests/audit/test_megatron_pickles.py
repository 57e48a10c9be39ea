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
        (b"\x80\x02}r\xff\xff\xff\x7fu.", "no sound pickle"),  # a place of memory far away, and no mark
        (b"\x80\x02\x82\x01.", "the operation EXT1"),
        (b"\x80\x04\x8f](K\x01ea\x90.", "no sound pickle"),
        (b"\x80\x02}]K\x01s.", "no sound pickle"),
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
