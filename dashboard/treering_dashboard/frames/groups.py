"""Runs as groups of seeds: the comparison as of now, the runs that belong together, and curves of a group."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import streamlit as st

from treering.config.canonical import digest_json
from treering.errors import EvidenceError
from treering.metrics.contenders import contender_of
from treering.metrics.groups import GroupComparison, compare_groups
from treering.runlog.directory import RunDirectory
from treering.runlog.find import AnyRun
from treering.runlog.recorded_directory import RecordedRunDirectory
from treering_dashboard.frames.cached import Version, version_along, version_beside
from treering_dashboard.frames.reads import fed


def compared(runs: Sequence[AnyRun], *, data: bool) -> GroupComparison:
    """The comparison of runs as groups of seeds.

    Args:
        runs: the runs, first the one that others are compared with.
        data: whether what they were fed is compared too.

    Raises:
        EvidenceError: a config, an evaluation or a ring does not hold.
    """
    return _compared(tuple(_key(run) for run in runs), tuple(version_along(run) for run in runs), data=data)


@st.cache_resource(max_entries=16, show_spinner="Comparing …")
def _compared(keys: tuple[tuple[str, bool], ...], versions: tuple[Version, ...], *, data: bool) -> GroupComparison:
    del versions  # part of the key alone
    return compare_groups([_run(*key) for key in keys], fed, data=data)


def with_seeds(chosen: Sequence[AnyRun], every: Sequence[AnyRun]) -> list[AnyRun]:
    """The chosen runs, and behind them those runs that differ from one of them in their seeds alone."""
    wanted = {_content(*_key(run), version_beside(run)) for run in chosen} - {None}
    there = {run.path for run in chosen}
    others = [run for run in every if run.path not in there and run.attempts()]
    return [*chosen, *(run for run in others if _content(*_key(run), version_beside(run)) in wanted)]


@st.cache_resource(max_entries=4096, show_spinner=False)
def _content(path: str, recorded: bool, version: Version) -> str | None:
    """Digest of what the runs of a group share; None where the config does not hold."""
    del version  # part of the key alone
    try:
        return digest_json(contender_of(_run(path, recorded)).content)
    except EvidenceError:
        return None


def _key(run: AnyRun) -> tuple[str, bool]:
    return str(run.path), isinstance(run, RecordedRunDirectory)


def _run(path: str, recorded: bool) -> AnyRun:
    return RecordedRunDirectory(Path(path)) if recorded else RunDirectory(Path(path))


def band(curves: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The curve of a group: mean of its runs, from the lowest to the highest, as far as all of them reach.

    Args:
        curves: of the runs, at least one, with the columns x, y and step. Of one run, its own curve.
    """
    if len(curves) == 1:
        return curves[0]
    first = curves[0]
    x = first["x"].to_numpy(float)
    values = np.vstack([_at(x, curve) for curve in curves])
    facts = [name for name in ("x", "step", "tokens") if name in first]
    mean, low, high = values.mean(axis=0), values.min(axis=0), values.max(axis=0)
    return first[facts].assign(y=mean, lo=low, hi=high, bad=0, segment=0).dropna(subset="y")


def _at(x: np.ndarray, curve: pd.DataFrame) -> np.ndarray:
    """A curve at other places, NaN where it does not reach."""
    known = curve[curve["y"].notna()].sort_values("x")
    if known.empty:
        return np.full(len(x), np.nan)
    found: np.ndarray = np.interp(x, known["x"].to_numpy(float), known["y"].to_numpy(float), left=np.nan, right=np.nan)
    return found
