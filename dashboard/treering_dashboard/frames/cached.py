"""Readers with a memory: what a run's files say, kept until one of them changes.

The key is the run's folder and the size and time of each of its small files, never a frame: hashing large frames from
a sample lets two share a value.
"""

import os
import shlex
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import streamlit as st

from treering.audit.documents.exposure_index import project_runs
from treering.config.operation import ElectricityConfig
from treering.config.resolved import CONFIG_FILE, Resolved, ancestor_folder
from treering.config.settings import read_settings
from treering.errors import EvidenceError
from treering.metrics.bias import BiasReport, assess
from treering.metrics.hans import Hans, hans_of
from treering.metrics.lines.line import RunLine
from treering.metrics.lines.read import run_line
from treering.metrics.logbook import Logbook
from treering.metrics.logbook import logbook as read_logbook
from treering.metrics.path_summary import summary_of_path
from treering.metrics.recorded_summary import path_tokens, recorded_energy
from treering.metrics.run_summary import own_energy
from treering.metrics.sensors import sensors
from treering.project import Project
from treering.runlog.analyses import Bias
from treering.runlog.directory import EVALUATIONS, MANIFEST_FILE, CheckpointDirectory, RunDirectory
from treering.runlog.find import AnyRun, find_runs, runs_of_any_trainer
from treering.runlog.folders import END_FILE, HEADER_FILE
from treering.runlog.incidents import INCIDENTS_FILE
from treering.runlog.journal import JOURNAL, Scored
from treering.runlog.mirror import MIRROR_FILE
from treering.runlog.recorded_directory import RECORD_FILE, RecordedRunDirectory
from treering.runlog.records import Evaluation
from treering.runlog.reproductions import REPRODUCTION_FILE, REPRODUCTIONS
from treering.runlog.ring import RINGS_FILE
from treering.runlog.ring_file import stored
from treering.store.ledger.search.folders import FolderFacts
from treering_dashboard.frames.recorded import read_recorded
from treering_dashboard.frames.rings import RunFrames, read_run
from treering_dashboard.frames.telemetry import Telemetry, read_telemetry

ROOT_VARIABLE: Final = "TREERING_ROOT"

_SENSED_EVERY_S: Final = 15.0

Version = tuple[tuple[str, int, int], ...]

_GROWING = (f"attempts/*/{RINGS_FILE}*", "attempts/*/ranks/*.jsonl*")  # compressed or not
_RECORDS = (
    CONFIG_FILE,
    f"attempts/*/{HEADER_FILE}",
    *_GROWING,
    f"attempts/*/{INCIDENTS_FILE}",
    f"attempts/*/{END_FILE}",
    f"checkpoints/*/{MANIFEST_FILE}",
    "checkpoints/*.json",
    RECORD_FILE,
    JOURNAL,
    MIRROR_FILE,
    f"{REPRODUCTIONS}/*/{REPRODUCTION_FILE}",
    f"{EVALUATIONS}/*.json",
    f"{EVALUATIONS}/*/*.json",
)
_EVENTS = (*_RECORDS, "attempts/*/telemetry/*.events.jsonl")
_SENSORS = (
    "attempts/*/telemetry/rank-*.jsonl",
    "attempts/*/telemetry/live/*.jsonl",
    "attempts/*/telemetry/parts/*.parquet",
)


def project() -> Project:
    """The project that is shown: `TREERING_ROOT`, else the folder that the server was started in."""
    return Project(Path(os.environ.get(ROOT_VARIABLE) or Path.cwd()))


def from_root(path: Path) -> str:
    """A path as a command in the project's folder names it."""
    root = project().root
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def quoted(path: Path | str) -> str:
    """The same as one word of a command to copy: a record may name a path with any characters."""
    return shlex.quote(from_root(Path(path)))


def named(folder: str) -> str:
    """How a command names a run: by the beginning of its folder's name, as one word."""
    return shlex.quote(folder[:8])


def runs() -> list[RunDirectory]:
    """All runs, newest activity first."""
    return find_runs(project().runs)[::-1]


def all_runs() -> list[AnyRun]:
    """All runs, recorded ones too, newest activity first."""
    return sorted(runs_of_any_trainer(project().runs), key=_last_activity, reverse=True)


def _last_activity(run: AnyRun) -> float:
    times = [0.0]
    for file in (
        *(stored(attempt.rings_file) for attempt in run.attempts()),
        run.path / CONFIG_FILE,
        run.path / RECORD_FILE,
    ):
        with suppress(FileNotFoundError):
            times.append(file.stat().st_mtime)
    return max(times)


def version(run: AnyRun, records: Sequence[str] = _RECORDS) -> Version:
    """Names, sizes and times of the run's records: equal as long as nothing was written."""
    return file_version(run.path, *records)


def version_beside(run: AnyRun) -> Version:
    """The same of the records that do not grow with every step."""
    return version(run, [name for name in _RECORDS if name not in _GROWING])


def version_along(run: AnyRun, records: Sequence[str] = _RECORDS) -> Version:
    """The same of a run and of those that it starts from: its path leads through them."""
    own = version(run, records)
    found, folder, known = list(own), run.path, {run.path}
    with suppress(EvidenceError):  # a config that does not hold names no run before it
        while config := next((each for each in own if each[0] == CONFIG_FILE), None):
            start = _start(folder, config)
            if start is None or (folder := ancestor_folder(folder, start)) in known:
                break
            known.add(folder)
            own = file_version(folder, *records)
            found += [(f"{folder}/{name}", size, time) for name, size, time in own]
    return tuple(found)


@lru_cache(maxsize=4096)
def _start(folder: Path, config: tuple[str, int, int]) -> str | None:
    """Digest of the run that one starts from, by its config, whose size and time are part of the key."""
    del config
    start = Resolved.read(folder / CONFIG_FILE).recipe.start_from
    return None if start is None else start.run


def file_version(folder: Path, *patterns: str) -> Version:
    """Names, sizes and times of a folder's files."""
    found = []
    for pattern in patterns:
        for path in sorted(folder.glob(pattern)):
            with suppress(FileNotFoundError):  # it was renamed or removed since
                status = path.stat()
                found.append((str(path.relative_to(folder)), status.st_size, status.st_mtime_ns))
    return tuple(found)


def sensors_version(run: AnyRun) -> Version:
    """Names, sizes and times of what the sensors of a run wrote."""
    return version(run, _SENSORS)


def corpora_version() -> Version:
    """All files of the corpora, manifests and tokenizer among them."""
    return file_version(project().corpora, "*", "*/*/*")


def runs_version() -> Version:
    """Records of all runs, each below its folder: two may have files of one size and time."""
    return tuple(
        (f"{run.path}/{name}", size, time) for run in project_runs(project()) for name, size, time in version(run)
    )


def frames(run: AnyRun) -> RunFrames:
    """The run's frames as of now."""
    return _frames(str(run.path), version_along(run), recorded=isinstance(run, RecordedRunDirectory))


@st.cache_resource(max_entries=64, show_spinner=False)
def _frames(path: str, version: Version, *, recorded: bool) -> RunFrames:
    del version  # part of the key alone
    return read_recorded(RecordedRunDirectory(Path(path))) if recorded else read_run(RunDirectory(Path(path)))


def _opened(path: str, *, recorded: bool) -> AnyRun:
    """A run by what a key names of it."""
    return RecordedRunDirectory(Path(path)) if recorded else RunDirectory(Path(path))


def summary(run: AnyRun) -> RunLine:
    """The run's line as of now: kept until a file changes, for a second where processes train the run."""
    now, seen, recorded = time.time(), version_along(run), isinstance(run, RecordedRunDirectory)
    second = int(now) if run.is_held else 0  # whether its processes answer is seen in no file
    kept = _line(str(run.path), seen, second, recorded=recorded)
    if kept.mirror and kept.state in {"running", "diverging"}:  # by the clock alone it stalls, and stays so
        kept = _line(str(run.path), seen, int(now), recorded=recorded)
    return replace(kept, now=now, mirror=run.mirror_doubt if kept.mirror else "")


def whole_summary(run: AnyRun) -> RunLine:
    """The same with every fault of the evidence: a list reads the newest manifest, a page all of them."""
    return summary(run).with_problems(frames(run).problems)


@st.cache_resource(max_entries=4096, show_spinner=False)
def _line(path: str, version: Version, second: int, *, recorded: bool) -> RunLine:
    del version, second  # part of the key alone
    return run_line(_opened(path, recorded=recorded))


def facts(run: AnyRun) -> FolderFacts:
    """What a query may ask of a run beside its line, kept until a record that does not grow changes."""
    recorded = isinstance(run, RecordedRunDirectory)
    return _facts(str(run.path), version_beside(run), project().name, recorded=recorded)


@st.cache_resource(max_entries=4096, show_spinner=False)
def _facts(path: str, version: Version, project: str, *, recorded: bool) -> FolderFacts:
    del version  # part of the key alone
    return FolderFacts(_opened(path, recorded=recorded), project)


def logbook(run: AnyRun) -> Logbook:
    """The run's logbook as of now."""
    return _logbook(str(run.path), version_along(run, _EVENTS), recorded=isinstance(run, RecordedRunDirectory))


@st.cache_resource(max_entries=16, show_spinner=False)
def _logbook(path: str, version: Version, *, recorded: bool) -> Logbook:
    del version  # part of the key alone
    return read_logbook(_opened(path, recorded=recorded))


def hans(checkpoint: CheckpointDirectory) -> Hans | None:
    """A checkpoint's answers to HANS; None where it has none.

    Raises:
        EvidenceError: the evaluation was changed.
    """
    for file in checkpoint.run.evaluation_files():
        if file.stem == checkpoint.path.name:
            return _hans(str(file), file_version(file.parent, file.name), checkpoint.digest)
    return None


@st.cache_resource(max_entries=8, show_spinner=False)
def _hans(file: str, version: Version, checkpoint: str) -> Hans | None:
    del version  # part of the key alone
    evaluation, _ = Evaluation.read(Path(file))
    return hans_of(evaluation) if evaluation.checkpoint == checkpoint else None


def bias(checkpoint: CheckpointDirectory) -> BiasReport | None:
    """What was measured of a checkpoint's bias; None where nothing was.

    Raises:
        EvidenceError: the record was changed.
    """
    for file in checkpoint.run.analysis_files(Bias.analysis):
        if file.stem == checkpoint.path.name:
            report = _bias(str(file), file_version(file.parent, file.name))
            return report if report.record.checkpoint == checkpoint.digest else None
    return None


@st.cache_resource(max_entries=8, show_spinner=False)
def _bias(file: str, version: Version) -> BiasReport:
    del version  # part of the key alone
    return assess(Bias.read(Path(file))[0])


def telemetry_version(run: AnyRun) -> Version:
    """What the sensors wrote, seen every quarter of a minute while the run goes on: every rank writes all the time."""
    if run.is_held:
        return (("", 0, int(time.time() / _SENSED_EVERY_S)),)
    return version_along(run) + sensors_version(run)


def telemetry(run: AnyRun) -> Telemetry:
    """What sensors saw, as of now or at most `telemetry_version` ago."""
    return _telemetry(str(run.path), telemetry_version(run), recorded=isinstance(run, RecordedRunDirectory))


@st.cache_resource(max_entries=16, show_spinner=False)
def _telemetry(path: str, version: Version, *, recorded: bool) -> Telemetry:
    del version  # part of the key alone
    run = _opened(path, recorded=recorded)
    return read_telemetry(run, frames(run).path)


def energy(run: AnyRun) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The energy of a run, see `run_energy`, and what its sensors reported, see `sensors`.

    Raises:
        EvidenceError: a record of the run does not hold.
        ConfigError: `treering.yaml` does not hold.
    """
    recorded = isinstance(run, RecordedRunDirectory)
    electricity = read_settings(project()).electricity
    tokens = _path_tokens(run) if isinstance(run, RecordedRunDirectory) else None
    return _energy(str(run.path), version_along(run), sensors_version(run), electricity, tokens, recorded=recorded)


def _path_tokens(run: RecordedRunDirectory) -> int | None:
    """The tokens of all ranks as the run's line has them; a run that does not hold is asked itself."""
    line = summary(run)
    if line.problems:
        return path_tokens(run)
    return line.consumed_tokens if line.all_ranks else None


@st.cache_data(max_entries=16, show_spinner=False)
def _energy(
    path: str,
    version: Version,
    seen: Version,
    electricity: ElectricityConfig,
    tokens: int | None,
    *,
    recorded: bool,
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    del version, seen  # part of the key alone
    if recorded:
        other = RecordedRunDirectory(Path(path))
        return recorded_energy(other, tokens, electricity), sensors(other.attempts())
    run = RunDirectory(Path(path))
    summary = summary_of_path(run)
    tflops = [ring.tflops_per_device for ring in summary.newest if ring.tflops_per_device is not None]
    return own_energy(run, summary, statistics.median(tflops) if tflops else None), sensors(run.attempts())


def scored(run: RecordedRunDirectory) -> tuple[list[Scored], EvidenceError | None]:
    """The scores that another trainer reported, and the error if they cannot be read."""
    try:
        return [line.entry for line in run.journal.lines() if isinstance(line.entry, Scored)], None
    except EvidenceError as error:
        return [], error


def evaluations(run: RunDirectory) -> tuple[list[Evaluation], EvidenceError | None]:
    """Evaluations by step without results by item, which are most of a record, and the error if they cannot be read."""
    try:
        return [_scores(str(path), file_version(path.parent, path.name)) for path in run.evaluation_files()], None
    except EvidenceError as error:
        return [], error


def newest_evaluation(run: RunDirectory) -> tuple[Evaluation | None, EvidenceError | None]:
    """The newest evaluation with its results by item, and the error if it cannot be read."""
    try:
        files = run.evaluation_files()
        return Evaluation.read(files[-1])[0] if files else None, None
    except EvidenceError as error:
        return None, error


@st.cache_resource(max_entries=2000, show_spinner=False)
def _scores(path: str, version: Version) -> Evaluation:
    del version  # part of the key alone
    return Evaluation.read(Path(path))[0].model_copy(update={"items": None, "fields": {}})
