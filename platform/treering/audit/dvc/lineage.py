"""What DVC says a checkpoint was made from, compared with the checkpoint's own records.

`dvc.lock` names for a stage the inputs as they were *after* its command, whatever the command did with them. So
an output that was kept across a change (`persist: true`), inherited by an experiment, or made while its data changed
is recorded with inputs that never made it, and `dvc status` calls it up to date. The checkpoint's rings, header and
manifest were written while it was made.

`dvc.api` has no call that returns the inputs that `dvc.lock` recorded for a stage, and `params_show` reads the
parameter files as they are now. So the recorded stage is parsed here.

Compared is the entry of the audited checkpoint, where it is the output that `dvc.lock` describes: always blend and
recipe, with `--verify` also the corpora's files.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from treering.audit.corpora.catalog import Catalog
from treering.audit.dvc.stores import Store, find_stores
from treering.audit.evidence.segments import Piece, RecordedSegment
from treering.audit.report import Finding
from treering.config.canonical import short
from treering.config.model import ModelConfig, OptimizerConfig, ScheduleConfig, Section
from treering.config.resolved import Recipe
from treering.config.resolved_blend import ResolvedBlend
from treering.config.yaml_text import parse_yaml
from treering.errors import TreeringError
from treering.files import open_regular, read_bytes, read_text
from treering.project import Project
from treering.runlog.directory import CheckpointDirectory

_SECTIONS: dict[str, type[Section]] = {"model": ModelConfig, "optimizer": OptimizerConfig, "schedule": ScheduleConfig}
_PLAIN = ("seed", "precision")
_RESCUE = (
    "DVC records inputs after a command and keeps such an output as it is; `dvc repro -f` of the stage without "
    "`persist: true` makes it anew"
)


@dataclass(frozen=True, slots=True)
class _Claim:
    """What `dvc.lock` records about the stage that made a checkpoint."""

    file: Path
    stage: str
    deps: dict[str, str]
    params: dict[str, Any]
    stores: list[Store]

    def finding(self, text: str, corpus: str | None = None) -> Finding:
        return Finding("lineage", f"{self.file}: stage {self.stage}: {text}", file=str(self.file), corpus=corpus)


def check_lineage(
    checkpoint: CheckpointDirectory, end: Piece, catalog: Catalog, project: Project, *, verify: bool = False
) -> list[Finding]:
    """Compares a checkpoint that is a DVC out with its entry in `dvc.lock`; nothing where DVC claims nothing of it.

    Args:
        checkpoint: the checkpoint.
        end: the last steps before it, whose attempt says which corpora it had opened.
        catalog: the available corpora.
        project: whose `dvc.lock` it is.
        verify: digest the corpora's files again, to know whether the entry is about the present files.
    """
    claim = _claim(checkpoint, project)
    if claim is None:
        return []
    resolved = checkpoint.run.resolved
    findings = _blend_findings(claim, resolved.blend, project)
    findings += _recipe_findings(claim, resolved.recipe, [text.partition("=")[0] for text in resolved.overrides])
    if verify and isinstance(end, RecordedSegment):
        findings += _corpus_findings(claim, end.attempt.header.corpora, catalog, project)
    return findings


def _claim(checkpoint: CheckpointDirectory, project: Project) -> _Claim | None:
    """The entry of the stage whose out holds this very checkpoint."""
    file = project.root / "dvc.lock"
    stores, _ = find_stores(project.root)
    try:
        stages = parse_yaml(read_text(file))["stages"]
        run = checkpoint.run.path.resolve().relative_to(project.root.resolve()).as_posix()
        found = [
            (_Claim(file, name, _by_path(entry, "deps"), dict(entry.get("params") or {}), stores), outs[run])
            for name, entry in stages.items()
            if run in (outs := _by_path(entry, "outs"))
        ]
    except (OSError, UnicodeDecodeError, ValueError, yaml.YAMLError, KeyError, TypeError, AttributeError):
        return None
    if not found:
        return None
    claim, md5 = found[0]
    manifest = checkpoint.manifest_file
    if not manifest.is_relative_to(checkpoint.run.path):
        return None  # a copy elsewhere, which is answered for by the run log in the out
    tree = _tree(md5, stores) or {}
    claimed = tree.get(manifest.relative_to(checkpoint.run.path).as_posix())
    if claimed != _md5(manifest):
        return None  # the checkpoint there is not the one in DVC's record: `dvc status` says so
    return claim


def _by_path(entry: dict[str, Any], part: str) -> dict[str, str]:
    """The md5 of each file or folder that an entry lists under `deps` or `outs`."""
    return {str(each["path"]): str(each["md5"]) for each in entry.get(part) or () if "md5" in each}


def _blend_findings(claim: _Claim, blend: ResolvedBlend, project: Project) -> list[Finding]:
    path = project.blend.relative_to(project.root).as_posix()
    said = _content(claim.deps.get(path), project.blend, claim.stores)
    if said is None:
        return []
    try:
        other = ResolvedBlend.read(said)
    except TreeringError:
        return []
    if other.digest == blend.alone.digest:
        return []
    text = (
        f"is said to have read {path} as blend {_described(other)}, but the checkpoint's rings and manifest say blend "
        f"{_described(blend)}: it was made before the change and not trained on the other. {_RESCUE}"
    )
    return [claim.finding(text)]


def _described(blend: ResolvedBlend) -> str:
    shares = ", ".join(f"{component.corpus} {component.weight}" for component in blend.components)
    return f"{short(blend.digest)}… ({shares}; seed {blend.seed})"


def _recipe_findings(claim: _Claim, recipe: Recipe, overridden: Sequence[str]) -> list[Finding]:
    """Parameters that DVC says the stage had and the recipe has otherwise, but for those that the command overrode."""
    pairs: list[tuple[str, Any, Any]] = []
    for values in claim.params.values():
        for name, said in values.items() if isinstance(values, dict) else ():
            if name in _PLAIN:
                pairs.append((name, said, getattr(recipe, name)))
            elif name in _SECTIONS:
                pairs += _authored(name, said, getattr(recipe, name))
    differ = [
        f"{path} {said}, the checkpoint's recipe says {found}"
        for path, said, found in pairs
        if said != found and not any(_within(path, other) or _within(other, path) for other in overridden)
    ]
    if not differ:
        return []
    text = (
        f"is said to have trained with {'; '.join(differ)}: the checkpoint is another experiment's and was inherited, "
        f"not trained. {_RESCUE}"
    )
    return [claim.finding(text)]


def _within(path: str, other: str) -> bool:
    return f"{path}.".startswith(f"{other}.")


def _authored(name: str, said: Any, recipe: Section) -> list[tuple[str, Any, Any]]:
    """What DVC records about each authored field of a section, and what the recipe has; defaults are left out."""
    try:
        section = _SECTIONS[name].model_validate(said)
    except ValidationError:
        return []  # an entry of another version says nothing that could be compared
    fields = [
        (f"{name}.{field}", getattr(section, field), getattr(recipe, field)) for field in section.model_fields_set
    ]
    return sorted((path, told, found) for path, told, found in fields if told is not None)


def _corpus_findings(claim: _Claim, opened: dict[str, str], catalog: Catalog, project: Project) -> list[Finding]:
    """Files of corpora that DVC says were read, and the trainer had opened with another content."""
    path = project.corpora.relative_to(project.root).as_posix()
    md5 = claim.deps.get(path)
    tree = None if md5 is None else _tree(md5, claim.stores) or _workspace_tree(md5, project.corpora)
    if tree is None:
        return []
    findings = []
    for name, digest in opened.items():
        corpus = catalog.corpora.get(digest)
        if corpus is None:
            continue  # reported as missing
        folder = project.corpus(name).relative_to(project.corpora).as_posix()
        for file, record in corpus.manifest["files"].items():
            found, expected = tree.get(f"{folder}/{file}"), record["dvc_md5"]
            if found is not None and found != expected:
                text = (
                    f"is said to have read {path}/{folder}/{file} with md5 {found}, but the trainer had opened corpus "
                    f"{name} as {digest}, whose file has md5 {expected}: the data changed while or after the stage "
                    "ran, and DVC records inputs after a command. `dvc checkout` or `dvc repro tokenize` restores them"
                )
                findings.append(claim.finding(text, corpus=name))
    return findings


def _content(md5: str | None, path: Path, stores: list[Store]) -> Path | None:
    """A file with that md5: in its own place, or in a store."""
    if md5 is None:
        return None
    places = [path, *(store.file(md5) for store in stores)]
    return next((place for place in places if place.is_file() and _md5(place) == md5), None)


def _tree(md5: str, stores: list[Store]) -> dict[str, str] | None:
    """The files of a tracked folder, md5 by path, from the first store that holds its list."""
    for store in stores:
        try:
            entries = json.loads(read_bytes(store.file(md5)))
            return {str(entry["relpath"]): str(entry["md5"]) for entry in entries}
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def _workspace_tree(md5: str, folder: Path) -> dict[str, str] | None:
    """The files of a folder as they are now, if DVC's md5 of it is this one."""
    tree = {path.relative_to(folder).as_posix(): _md5(path) for path in folder.rglob("*") if path.is_file()}
    listed = [{"md5": tree[name], "relpath": name} for name in sorted(tree)]
    digest = hashlib.md5(json.dumps(listed, sort_keys=True).encode(), usedforsecurity=False).hexdigest()
    return tree if md5 == f"{digest}.dir" else None


def _md5(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
