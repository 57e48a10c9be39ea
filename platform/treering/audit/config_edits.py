"""Which field of a run's config was edited.

The digests that `resolved.json` carries name the part that no longer fits (recipe, blend, attempt); sizes, names and
the tokenizer in its blend are covered by none. Which field it was, other records tell that say the same: copies of the
config, the attempts' headers, the project's blend, manifests of corpora.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from treering.audit.path import Piece
from treering.audit.report import Finding
from treering.audit.shelf import Shelf
from treering.config.canonical import digest_json, parse_json, said_otherwise, short
from treering.config.resolve import ANCESTORS, RUN_ID_LENGTH, Resolved, ResolvedBlend
from treering.errors import EvidenceError, TreeringError
from treering.files import read_bytes
from treering.project import Project
from treering.runlog.directory import RunDirectory

_SHOWN = 3


def edited_fields(run: RunDirectory, project: Project) -> str:
    """The fields of a run's config that other records give otherwise, to follow an error about it; empty if none does.

    Args:
        run: the run, whose config need not hold.
        project: where copies of the config and the blend lie.
    """
    file = run.path / "resolved.json"
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        document = parse_json(read_bytes(file))
        told: dict[str, str] = {}
        for place, said in (
            *_headers(run, document),
            *_manifests(run),
            *_copies(file, document, project),
            *_blend(document, project),
        ):
            for field, found, expected in said_otherwise(document, said):
                told.setdefault(field, f"{field} is {_shown(found)}, but {_shown(expected)} by {place}")
        fields = list(told.values())
        more = f"; and {len(fields) - _SHOWN} more fields" if len(fields) > _SHOWN else ""
        return "".join(f"; {text}" for text in fields[:_SHOWN]) + more
    return ""


def _headers(run: RunDirectory, document: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """What the headers say, newest first: identities, corpora, and of the attempt whose config this is all of it."""
    components = document["blend"]["components"]
    for attempt in reversed(run.attempts()):
        with suppress(EvidenceError):
            header, place = attempt.header, attempt.path / "header.json"
            named = {digest: name for name, digest in header.corpora.items()}
            opened = [
                {"digest": header.corpora[each["corpus"]]}
                if each["corpus"] in header.corpora
                else {"corpus": named.get(each["digest"], each["corpus"])}
                for each in components
            ]
            yield (
                place,
                {
                    "run": short(header.run, RUN_ID_LENGTH),
                    "digests": {"recipe": header.run, "blend": header.blend},
                    "recipe": {"blend": header.blend},
                    "blend": {"components": opened},
                },
            )
            config = header.config.model_dump(mode="json")
            digest = digest_json(config)
            if digest in {document["digests"]["attempt"], digest_json(document["attempt"])}:
                yield place, {"attempt": config, "digests": {"attempt": digest}}


def _manifests(run: RunDirectory) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The tokenizer, which manifests of checkpoints name."""
    for checkpoint in run.checkpoints():
        with suppress(EvidenceError):
            tokenizer = {"tokenizer": checkpoint.manifest.tokenizer}
            yield checkpoint.path / "manifest.json", {"recipe": tokenizer, "blend": tokenizer}


def _copies(file: Path, document: dict[str, Any], project: Project) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Other copies of the config that hold: the run's, the published one, those that runs carry along."""
    recipe = short(document["digests"]["recipe"], RUN_ID_LENGTH)
    names = {str(document["run"]), recipe, file.parent.name}
    places = [project.published, *project.runs.glob("*"), *project.runs.glob(f"*/{ANCESTORS}/*")]
    for place in sorted((*places, *(project.published / ANCESTORS).glob("*"))):
        copy = place / "resolved.json"
        with suppress(TreeringError):
            resolved = Resolved.read(copy)
            if copy.resolve() != file.resolve() and resolved.run_id in names:
                said = resolved.to_json()
                parts = {name: said[name] for name in ("recipe", "blend", "run")}
                yield copy, {**parts, "digests": {name: said["digests"][name] for name in ("recipe", "blend")}}


def _blend(document: dict[str, Any], project: Project) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The project's blend, if it is the one that the config names."""
    with suppress(TreeringError):
        blend = ResolvedBlend.read(project.blend)
        if blend.digest in {document["digests"]["blend"], document["recipe"]["blend"]}:
            yield project.blend, {"blend": blend.model_dump(mode="json")}


def _shown(value: object) -> str:
    return short(value) + "…" if isinstance(value, str) and value.startswith("sha256:") else str(value)


def mend_blends(pieces: Sequence[Piece], shelf: Shelf) -> tuple[tuple[Piece, ...], list[Finding]]:
    """Corrects what no digest covers in the blends of a path by what has one, so that their order is what it was.

    The sizes of a corpus follow from its digest; the tokenizer stands in the recipe as well.

    Returns:
        The pieces with corrected blends, and a finding for each size; the tokenizer's is `check_config`'s.
    """
    mended: list[Piece] = []
    findings: dict[tuple[Path, str], Finding] = {}
    for piece in pieces:
        config, blend, components = piece.run.path / "resolved.json", piece.blend, []
        for number, component in enumerate(blend.components):
            corpus = shelf.corpora.get(component.digest or "")
            if corpus is None:
                components.append(component)
                continue
            held = {"num_tokens": corpus.num_tokens, "num_documents": corpus.num_documents}
            components.append(component.model_copy(update=held))
            for name, found, expected in said_otherwise(component.model_dump(), held):
                field = f"blend.components.{number}.{name}"
                text = (
                    f"{config}: {field}, {name} of corpus {component.corpus}, is {found}, expected {expected} by the "
                    f"manifest in {corpus.directory}, which has the blend's digest: the file was edited"
                )
                findings[config, field] = Finding("record", text, file=str(config), corpus=component.corpus)
        tokenizer = piece.run.resolved.recipe.tokenizer
        true = blend.model_copy(update={"tokenizer": tokenizer, "components": tuple(components)})
        mended.append(piece if true == blend else replace(piece, blend=true))
    return tuple(mended), list(findings.values())
