"""Which field of a run's config was edited.

The digests that `resolved.json` carries name the part that no longer fits (recipe, blend, attempt); sizes, names and
the tokenizer in its blend are covered by none. Which field it was, other records tell that say the same: copies of the
config, the attempts' headers, the project's blend, manifests of corpora.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from treering.config.canonical import digest_json, parse_json, said_otherwise, short
from treering.config.resolved import ANCESTORS, CONFIG_FILE, RUN_ID_LENGTH, Resolved
from treering.config.resolved_blend import ResolvedBlend
from treering.errors import EvidenceError, TreeringError
from treering.files import read_bytes
from treering.project import Project
from treering.runlog.directory import RunDirectory

_SHOWN = 3


def name_edited_fields(error: EvidenceError, run: RunDirectory, project: Project) -> EvidenceError:
    """An error about a run's config, with the fields that other records contradict added to its text.

    Args:
        error: the error.
        run: the run.
        project: where copies of the config and the blend are.
    """
    return EvidenceError(
        f"{error}{_edited_fields(run, project)}",
        file=error.file or run.config_file,
        line=error.line,
        step=error.step,
        found=error.found,
        expected=error.expected,
        remedy=error.remedy,
    )


def _edited_fields(run: RunDirectory, project: Project) -> str:
    """The fields of a run's config that other records contradict; empty if no record does."""
    file = run.config_file
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        document = parse_json(read_bytes(file))
        edits: dict[str, str] = {}
        for place, said in (
            *_headers(run, document),
            *_manifests(run),
            *_copies(file, document, project),
            *_blend(document, project),
        ):
            for field, found, expected in said_otherwise(document, said):
                edits.setdefault(field, f"{field} is {_shown(found)}, but {_shown(expected)} by {place}")
        fields = list(edits.values())
        more = f"; and {len(fields) - _SHOWN} more fields" if len(fields) > _SHOWN else ""
        return "".join(f"; {text}" for text in fields[:_SHOWN]) + more
    return ""


def _headers(run: RunDirectory, document: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """What the headers say, newest first: identities, corpora, and of the attempt whose config this is all of it."""
    components = document["blend"]["components"]
    for attempt in reversed(run.attempts()):
        with suppress(EvidenceError):
            header, place = attempt.header, attempt.header_file
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
            yield checkpoint.manifest_file, {"recipe": tokenizer, "blend": tokenizer}


def _copies(file: Path, document: dict[str, Any], project: Project) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Other copies of the config that hold: the run's, the published one, those that runs carry along."""
    recipe = short(document["digests"]["recipe"], RUN_ID_LENGTH)
    names = {str(document["run"]), recipe, file.parent.name}
    places = [project.published, *project.runs.glob("*"), *project.runs.glob(f"*/{ANCESTORS}/*")]
    for place in sorted((*places, *(project.published / ANCESTORS).glob("*"))):
        copy = place / CONFIG_FILE
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
