"""Random changes to a whole project: `treering verify` finds each one that changes content, and names its place.

The project is one that the real trainer recorded: three attempts, a conversion, evaluations, a published checkpoint, a
signature. TREERING_RANDOM_CHANGES sets how many changes are tried (default 300), TREERING_RANDOM_SEED which.
"""

import json
import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from recorded_project import unpack

from treering.audit.attestation.keys import PublicKey
from treering.audit.inventory import verify_paths
from treering.config.canonical import canonical_json, digest_json, parse_json
from treering.config.resolved_blend import ResolvedBlend
from treering.data.corpus.manifest import manifest_digest
from treering.project import Project

CHANGES = int(os.environ.get("TREERING_RANDOM_CHANGES", "300"))
SEED = int(os.environ.get("TREERING_RANDOM_SEED", "0"))
SLICES = 6
"""Tests that share the changes, so that several workers can."""

COVERED = (
    "data/corpora",
    "data/blend.json",
    "runs",
    "published",
    "published.evaluations",
    "published.attestation.json",
)
UNCOVERED = ("/telemetry/", "/logs/", "/lock", "/ship-mlflow.lock", "/.lock")
"""Files without digests, which docs/verification.md names."""

WRONG = [None, "", "7", 7, -1, 0.5, 10**400, [], {}, True, float("nan"), "x" * 3]


@dataclass(frozen=True)
class Change:
    """What was changed.

    Attributes:
        kind: in words.
        touched: paths to put right again.
        places: paths of which a finding or a note must name one.
        excused: why the change may stay unseen, as docs/verification.md lists it; empty if it may not.
    """

    kind: str
    touched: tuple[Path, ...]
    places: tuple[Path, ...]
    excused: str = ""


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    return unpack("journals", tmp_path_factory.mktemp("pristine"))


@pytest.fixture(scope="module")
def work(pristine, tmp_path_factory):
    root = tmp_path_factory.mktemp("work") / "project"
    shutil.copytree(pristine, root, symlinks=True)
    return root


def covered(root: Path) -> list[Path]:
    """Every file that a digest covers."""
    found = []
    for name in COVERED:
        place = root / name
        found += [place] if place.is_file() else [path for path in sorted(place.rglob("*")) if path.is_file()]
    return [path for path in found if not any(part in f"{path}" for part in UNCOVERED)]


def restore(root: Path, pristine: Path, touched: tuple[Path, ...]) -> None:
    for path in touched:
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)
    for path in touched:
        original = pristine / path.relative_to(root)
        if original.is_dir():
            shutil.copytree(original, path, symlinks=True)
        elif original.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(original, path)


def is_json(path: Path) -> bool:
    return path.suffix in {".json", ".jsonl"} and path.name != "tokenizer.json"


def other_value(value, rng):
    """Another value of the same type, or one of another type."""
    if rng.random() < 0.3:
        return rng.choice([each for each in WRONG if each != value or type(each) is not type(value)])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + rng.choice([1, -1, 0.5])
    if isinstance(value, str) and value:
        at = rng.randrange(len(value))
        return value[:at] + ("0" if value[at] != "0" else "1") + value[at + 1 :]
    return "something"


def change_field(value, rng, place=()):
    """One field of a JSON value changed, dropped or added; and its place."""
    if isinstance(value, dict) and value and rng.random() < 0.95:
        key = rng.choice(sorted(value))
        if rng.random() < 0.1:
            return {name: each for name, each in value.items() if name != key}, (*place, key)
        inner, where = change_field(value[key], rng, (*place, key))
        return {**value, key: inner}, where
    if isinstance(value, list) and value and rng.random() < 0.95:
        at = rng.randrange(len(value))
        inner, where = change_field(value[at], rng, (*place, at))
        return [*value[:at], inner, *value[at + 1 :]], where
    if isinstance(value, dict | list) and rng.random() < 0.5:
        added = {**value, "added": 1} if isinstance(value, dict) else [*value, 1]
        return added, (*place, "added")
    return other_value(value, rng), place


def same(before: str, after: str) -> bool:
    try:
        return canonical_json(parse_json(before)) == canonical_json(parse_json(after))
    except ValueError:
        return False


def reseal(path: Path, document):
    """The document under a digest that fits it, as a careful forger would leave it."""
    if not isinstance(document, dict):
        return document
    if path.name == "resolved.json":
        return reseal_config(document)
    content = {key: value for key, value in document.items() if key != "digest"}
    if path.name == "blend.json":
        with suppress(ValueError):
            return {**document, "digest": ResolvedBlend.model_validate(content).digest}
    elif path.name == "manifest.json" and "chunks" in json.dumps(document):
        return {**document, "digest": manifest_digest(document)}
    return {**document, "digest": digest_json(content)} if "digest" in document else document


def reseal_config(document):
    digests = dict(document["digests"]) if isinstance(document.get("digests"), dict) else {}
    for part in ("recipe", "attempt"):
        if part in document:
            digests[part] = digest_json(document[part])
    return {**document, "digests": digests, "run": str(digests.get("recipe", ""))[7:23]}


def changed_bytes(root, rng):
    path = rng.choice([each for each in covered(root) if each.stat().st_size])
    before = path.read_bytes()
    at = rng.randrange(len(before))
    how = rng.choice(["flipped", "cut", "added", "emptied"])
    after = {
        "flipped": before[:at] + bytes([before[at] ^ rng.randrange(1, 256)]) + before[at + 1 :],
        "cut": before[:at],
        "added": before + bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9))),
        "emptied": b"",
    }[how]
    path.write_bytes(after)
    excused = ""
    if is_json(path):
        excused = content_excuse(path, before.decode(), after.decode(errors="surrogateescape"))
    return Change(f"bytes {how} in {path.relative_to(root)} at {at}", (path,), (path,), excused)


def content_excuse(path: Path, before: str, after: str) -> str:
    """Why a changed text need not be found."""
    if path.suffix == ".jsonl":
        one, other = before.split("\n"), after.split("\n")
        kept = other[: len(one) - 1]
        equal = len(kept) == len(one) - 1 and all(a == b or same(a, b) for a, b in zip(one, kept, strict=False))
        return "no content, or an unfinished last line" if equal and len(other) <= len(one) else ""
    return "white space" if same(before, after) else field_excuse(path, before, after)


def field_excuse(path: Path, before: str, after: str) -> str:
    """Fields that no digest covers: the name of a corpus, and the labels of a config."""
    free = {"manifest.json": ("name",), "resolved.json": ("experiment", "description", "overrides")}
    try:
        one, other = (
            {key: value for key, value in parse_json(text).items() if key not in free.get(path.name, ())}
            for text in (before, after)
        )
    except (ValueError, AttributeError):
        return ""
    labels = path.name in free and ("chunks" in before or path.name == "resolved.json")
    return "a label that no digest covers" if labels and canonical_json(one) == canonical_json(other) else ""


def changed_field(root, rng, *, sealed=False):
    path = rng.choice([each for each in covered(root) if is_json(each)])
    before = path.read_text()
    if path.suffix == ".jsonl":
        lines = before.splitlines()
        at = rng.randrange(len(lines))
        document, where = change_field(json.loads(lines[at]), rng)
        lines[at] = canonical_json(reseal(path, document) if sealed else document)
        after, where = "\n".join(lines) + "\n", (at + 1, *where)
    else:
        document, where = change_field(json.loads(before), rng)
        after = json.dumps(reseal(path, document) if sealed else document, indent=2, sort_keys=True)
    path.write_text(after)
    how = "digested again" if sealed else "changed"
    excused = content_excuse(path, before, after)
    if sealed and path.name == "blend.json":
        excused = "the project's blend is the input of a training to come"
    return Change(f"field {'.'.join(map(str, where))} {how} in {path.relative_to(root)}", (path,), (path,), excused)


def resealed_field(root, rng):
    return changed_field(root, rng, sealed=True)


def kin(path: Path) -> tuple[str, str]:
    """What makes two files of a kind."""
    return path.suffix, path.name if path.suffix in {".json", ".jsonl"} and "step-" not in path.name else path.suffix


def other_of_its_kind(root, rng):
    files = covered(root)
    path = rng.choice(files)
    others = [each for each in files if kin(each) == kin(path) and each.read_bytes() != path.read_bytes()]
    return (path, rng.choice(others)) if others else other_of_its_kind(root, rng)


def swapped_files(root, rng):
    one, other = other_of_its_kind(root, rng)
    before = one.read_bytes(), other.read_bytes()
    one.write_bytes(before[1])
    other.write_bytes(before[0])
    return Change(f"{one.relative_to(root)} and {other.relative_to(root)} swapped", (one, other), (one, other))


def copied_file(root, rng):
    one, other = other_of_its_kind(root, rng)
    other.write_bytes(one.read_bytes())
    excused = ""
    return Change(f"{one.relative_to(root)} copied over {other.relative_to(root)}", (other,), (other,), excused)


def deleted_file(root, rng):
    path = rng.choice(covered(root))
    path.unlink()
    excused = "nothing names a signature" if path.name.endswith(".attestation.json") else ""
    return Change(f"{path.relative_to(root)} deleted", (path,), (path, path.parent), excused)


def folders(root) -> list[Path]:
    patterns = (
        "data/corpora/*/*", "runs/*/attempts/*", "runs/*/checkpoints/step-*", "runs/*/universal/step-*",
        "runs/*/evaluations", "published/attempts/*", "published/checkpoints/step-*", "published.evaluations",
        "runs/*/checkpoints/step-*/state", "published/checkpoints/step-*/state", "runs/*/attempts",
        "runs/*/checkpoints", "published/attempts",
    )  # fmt: skip
    return [path for pattern in patterns for path in sorted(root.glob(pattern)) if path.is_dir()]


def deleted_folder(root, rng):
    path = rng.choice(folders(root))
    shutil.rmtree(path)
    return Change(f"folder {path.relative_to(root)} deleted", (path,), (path, path.parent))


def swapped_folders(root, rng):
    path = rng.choice(folders(root))
    others = [each for each in folders(root) if each.parent == path.parent and each != path]
    if not others:
        return swapped_folders(root, rng)
    other, aside = rng.choice(others), path.with_name(".aside")
    for source, target in ((path, aside), (other, path), (aside, other)):
        source.rename(target)
    return Change(f"folders {path.relative_to(root)} and {other.name} swapped", (path, other), (path, other))


def copied_folder(root, rng):
    path = rng.choice([each for each in folders(root) if each.name.isdigit() or each.name.startswith("step-")])
    name = f"{rng.randrange(4, 9):04d}" if path.name.isdigit() else f"step-{rng.choice([1, 2, 3, 10, 11, 77]):08d}"
    target = path.with_name(name)
    shutil.copytree(path, target)
    return Change(f"folder {path.relative_to(root)} copied to {name}", (target,), (target,))


def added(root, rng):
    """Something new in a folder whose manifest names every file."""
    inside = [each for each in folders(root) if "step-" in f"{each}" or "/corpora/" in f"{each}"]
    folder = rng.choice(inside)
    path = folder / rng.choice(["extra.pt", "corpus.0001.bin", ".hidden", "zz"])
    how = rng.choice(["file", "folder", "link", "link to a folder", "hard link", "dangling link"])
    some = next(each for each in sorted(folder.rglob("*")) if each.is_file())
    actions: dict[str, Callable[[], object]] = {
        "file": lambda: path.write_bytes(b"x"),
        "folder": path.mkdir,
        "link": lambda: path.symlink_to(some),
        "link to a folder": lambda: path.symlink_to(root / "data"),
        "hard link": lambda: path.hardlink_to(some),
        "dangling link": lambda: path.symlink_to(root / "nowhere"),
    }
    actions[how]()
    return Change(f"{how} {path.relative_to(root)} added", (path,), (path,))


def linked(root, rng):
    """A file replaced by a link: to the same bytes nothing changes, to others it is another file."""
    one, other = other_of_its_kind(root, rng)
    target, excused = other, ""
    if rng.random() < 0.3:
        target = root / ".twin"
        shutil.copy2(one, target)
        excused = "a link to the same bytes"
    one.unlink()
    one.symlink_to(target)
    return Change(f"{one.relative_to(root)} replaced by a link ({excused})", (one, root / ".twin"), (one,), excused)


KINDS = (
    changed_bytes, changed_bytes, changed_field, changed_field, resealed_field, resealed_field, resealed_field,
    swapped_files, copied_file, deleted_file, deleted_folder, swapped_folders, copied_folder, added, linked,
)  # fmt: skip


def named(inventory, change: Change) -> bool:
    texts = [*(f"{each.file} {each.text}" for each in inventory.findings), *inventory.notes]
    return any(str(place) in text for place in change.places for text in texts)


def test_what_was_not_changed_holds(work):
    key = PublicKey.read(work / "signer.pub.pem")
    inventory = verify_paths(Project(work), trusted=[key])
    assert (inventory.findings, inventory.notes) == ((), ())


@pytest.mark.slow
@pytest.mark.parametrize("part", range(SLICES))
def test_every_change_of_content_is_found_and_named(part, work, pristine):
    key = PublicKey.read(work / "signer.pub.pem")
    wrong = []
    for number in range(part, CHANGES, SLICES):
        rng = random.Random(f"{SEED} {number}")
        change = rng.choice(KINDS)(work, rng)
        try:
            inventory = verify_paths(Project(work), trusted=[key])
            if change.excused:
                continue
            if not named(inventory, change):
                said = [each.text for each in inventory.findings] or list(inventory.notes) or "nothing"
                wrong.append(f"{number}: {change.kind}: not named, said {said}")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a traceback for a user
            wrong.append(f"{number}: {change.kind}: {type(error).__name__}: {error}")
        finally:
            restore(work, pristine, change.touched)
    assert not wrong, "\n".join(wrong)
