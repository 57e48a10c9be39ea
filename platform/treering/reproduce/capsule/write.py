"""Packs a capsule: one zip file with the records of a run, the same bytes for the same run.

Records are read while they are packed, a block at a time. Weights, texts, tokens, logs and the readings of sensors stay
where they are.
"""

import json
import os
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final

import treering
from treering.audit.corpora.catalog import Catalog, find_corpora
from treering.collect.code import is_installed, run_git, sources_root
from treering.config.canonical import DIGEST_PREFIX, digest_file
from treering.config.resolved import ANCESTORS
from treering.data.blend.continuation import experiment_file_of
from treering.data.corpus.corpus import MANIFEST, Corpus
from treering.errors import TreeringError, UserError
from treering.files import open_regular, read_bytes, read_text, replace_durably
from treering.progress import Progress, quiet
from treering.project import Project
from treering.redact import redact
from treering.reproduce.capsule.contents import METADATA, RECORD, RUN, Capsule, NeededCorpus, Packed
from treering.reproduce.capsule.crate import crate_metadata
from treering.reproduce.capsule.order import golden_vectors, orders_of
from treering.reproduce.capsule.readme import readme_text
from treering.runlog.copied import look
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyRun
from treering.runlog.folders import TELEMETRY
from treering.runlog.reproductions import REPRODUCTIONS

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_BLOCK: Final = 1 << 20
_LARGE: Final = 1 << 31
_SOURCES: Final = ("platform", "trainer", "pyproject.toml", "constraints.txt", "LICENSE", "README.md")


@dataclass(frozen=True, slots=True)
class Written:
    """A capsule that was written.

    Attributes:
        file: the zip file.
        size: its bytes.
        digest: its digest.
        capsule: its record.
    """

    file: Path
    size: int
    digest: str
    capsule: Capsule

    def to_json(self) -> dict[str, Any]:
        """What was written, as JSON values."""
        return {
            "file": str(self.file),
            "size": self.size,
            "digest": self.digest,
            **self.capsule.model_dump(mode="json"),
        }


def write_capsule(run: AnyRun, file: Path, project: Project, progress: Progress = quiet) -> Written:
    """Packs a run.

    Args:
        run: the run; it does not run.
        file: the zip file to write; a file of that name is replaced.
        project: where its corpora and experiments are.
        progress: is called with the number of files done.

    Raises:
        UserError: the run is running, or a package is not installed.
        EvidenceError: a record of the run does not hold.
        OSError: the file cannot be written.
    """
    if run.is_held:
        raise UserError(f"{run.path}: the run is running, expected one that has ended; make the capsule after its end")
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            capsule = _pack(run, _Packer(archive), project, progress)
        replace_durably(beside, file)
    finally:
        beside.unlink(missing_ok=True)
    return Written(file, file.stat().st_size, digest_file(file), capsule)


def _pack(run: AnyRun, packer: "_Packer", project: Project, progress: Progress) -> Capsule:
    records = list(_records(run))
    for done, (name, path) in enumerate(records, 1):
        with open_regular(path) as source:
            packer.add(name, source, path.stat().st_size)
        progress("records", done, len(records))
    for name, content in _beside(run, project):
        packer.add(name, BytesIO(content), len(content))
    orders = list(orders_of(run))
    catalog = find_corpora(project, [each.blend for each in orders])
    corpora = tuple(_needed(run, project, catalog, packer))
    attempts = run.attempts()
    header = attempts[-1].header if attempts else None
    ends = [each.end for each in attempts]
    times = [each.header.started_at for each in attempts] + [end.ended_at for end in ends if end]
    capsule = Capsule(
        treering=treering.__version__,
        kind="trained" if isinstance(run, RunDirectory) else "recorded",
        run=run.resolved.recipe.digest if isinstance(run, RunDirectory) else run.digest,
        experiment=run.resolved.experiment if isinstance(run, RunDirectory) else run.record.experiment,
        state=run.state(),
        steps=attempts[-1].last_step() if attempts else 0,
        written_at=max(times, default=0.0),
        code={} if header is None else {each: header.code.get(each) for each in ("digest", "commit", "dirty")},
        files=packer.packed,
        corpora=corpora,
        tokenizer=_tokenizer(project, {each.blend.tokenizer for each in orders}),
        orders=tuple(golden_vectors(each, catalog.corpora) for each in orders),
        left_out=("weights of checkpoints", "texts and tokens of the corpora", "logs", "readings of sensors"),
    )
    readme = readme_text(capsule).encode()
    packer.add("README.md", BytesIO(readme), len(readme))
    text = capsule.model_copy(update={"files": packer.packed}).text()[0].encode()
    capsule = capsule.model_copy(update={"files": dict(packer.packed)})
    packer.add(RECORD, BytesIO(text), len(text))
    metadata = crate_metadata(capsule, len(text)).encode()
    packer.add(METADATA, BytesIO(metadata), len(metadata))
    return capsule


class _Packer:
    """Adds files to a zip file and digests them on the way.

    Attributes:
        packed: what was added, by name.
    """

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self.packed: dict[str, Packed] = {}

    def add(self, name: str, source: BinaryIO, size: int) -> None:
        """Adds a file of about `size` bytes."""
        entry = zipfile.ZipInfo(name, _EPOCH)
        entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
        state, written = sha256(), 0
        with self._archive.open(entry, "w", force_zip64=size >= _LARGE) as target:
            while block := source.read(_BLOCK):
                state.update(block)
                written += target.write(block)
        self.packed[name] = Packed(size=written, digest=DIGEST_PREFIX + state.hexdigest())


def _records(run: AnyRun) -> Iterator[tuple[str, Path]]:
    """The records of a run and of the runs before it, by name in the capsule, sorted."""
    found = {f"{RUN}/{each.name}": run.path / each.name for each in look(run.path) if _packed(each.name)}
    while isinstance(run, RunDirectory) and (start := run.resolved.recipe.start_from) is not None:
        run = run.ancestor(start.run)
        for each in look(run.path):
            if _packed(each.name):
                found.setdefault(f"{RUN}/{ANCESTORS}/{run.id}/{each.name}", run.path / each.name)
    yield from sorted(found.items())


def _packed(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return TELEMETRY not in parts and parts[0] != REPRODUCTIONS


def _beside(run: AnyRun, project: Project) -> Iterator[tuple[str, bytes]]:
    """What explains the records: the authored experiment, the code, and DVC's files."""
    attempts = run.attempts()
    code = attempts[-1].header.code if attempts else {}
    if code.get("diff"):
        yield "code/changes.diff", str(code["diff"]).encode()
    if isinstance(run, RunDirectory):
        files = sorted(project.experiments.glob("*.yaml"))
        if (experiment := experiment_file_of(run.resolved, files, run.path.parent)) is not None:
            yield "experiment.yaml", redact(read_text(experiment)).encode()
        if (sources := _sources(code.get("commit"))) is not None:
            yield "code/sources.tar", sources
    for name in ("dvc.yaml", "dvc.lock"):
        if (project.root / name).is_file():
            yield name, redact(read_text(project.root / name)).encode()


def _sources(commit: str | None) -> bytes | None:
    """Treering's own sources of a commit as a tar file, where this is a clone that has the commit."""
    root = sources_root(Path(__file__))
    if commit is None or is_installed(root) or run_git(root, "cat-file", "-e", f"{commit}^{{commit}}") is None:
        return None
    done = subprocess.run(
        ["git", "archive", "--format=tar", commit, "--", *_SOURCES], cwd=root, capture_output=True, check=False
    )
    return done.stdout if done.returncode == 0 else None


def _needed(run: AnyRun, project: Project, catalog: Catalog, packer: _Packer) -> Iterator[NeededCorpus]:
    """The corpora of a run's orders, with the held-out parts that are here; manifests are packed."""
    seen: set[str] = set()
    for read in orders_of(run):
        for component in read.blend.components:
            digest = component.digest or ""
            if not digest or digest in seen:
                continue
            seen.add(digest)
            corpus = catalog.corpora.get(digest)
            if corpus is None:
                yield NeededCorpus(
                    name=component.corpus, split="train", digest=digest, tokens=component.num_tokens,
                    documents=component.num_documents, licence="unknown", source=(), files={}, manifest=None,
                )  # fmt: skip
                continue
            yield _entry(component.corpus, "train", corpus, packer)
            if not isinstance(run, RunDirectory) or run.resolved.attempt.validation is None:
                continue
            with suppress(TreeringError):
                heldout = Corpus.open(project.corpus(component.corpus, "heldout"))
                if heldout.manifest["tokenizer"]["digest"] == read.blend.tokenizer:
                    yield _entry(component.corpus, "heldout", heldout, packer)


def _entry(name: str, split: str, corpus: Corpus, packer: _Packer) -> NeededCorpus:
    manifest = read_bytes(corpus.directory / MANIFEST)
    place = f"corpora/{split}/{name}.json"
    packer.add(place, BytesIO(manifest), len(manifest))
    source = corpus.manifest.get("source", [])
    return NeededCorpus.model_validate(
        {
            "name": name,
            "split": split,
            "digest": corpus.digest,
            "tokens": corpus.num_tokens,
            "documents": corpus.num_documents,
            "licence": str(corpus.manifest.get("licence", "unknown")),
            "source": [redact(each if isinstance(each, str) else json.dumps(each)) for each in source],
            "files": {
                file: {"size": each["size"], "digest": each["sha256"]}
                for file, each in corpus.manifest["files"].items()
            },
            "manifest": place,
        }
    )


def _tokenizer(project: Project, digests: set[str | None]) -> Packed | None:
    """The project's tokenizer, where it is the one that cut the corpora."""
    file = project.tokenizer
    if not file.is_file() or (digest := digest_file(file)) not in digests:
        return None
    return Packed(size=file.stat().st_size, digest=digest)
