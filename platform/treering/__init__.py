"""Treering: reproducibility and experiment tracking for large-scale language-model training.

Text becomes corpora, corpora and weights become a blend, a blend and a recipe become a run; every optimizer step of a
run appends one ring to its run log. MLflow, the dashboard and the audit read what the run log holds.

This package never imports torch, deepspeed or streamlit: a training node, a dashboard host and an auditor's laptop all
import it.

The names below are the public interface; they are imported when they are first asked for. `treering.audit` answers
questions about checkpoints, steps and documents.
"""

from typing import TYPE_CHECKING

from treering.exports import lazily

if TYPE_CHECKING:
    from treering.config.load import load_experiment
    from treering.config.resolved_blend import ResolvedBlend
    from treering.config.schedule import Schedule
    from treering.data.corpus.corpus import Corpus
    from treering.data.order.contract import Order
    from treering.data.order.treering1 import DataOrder
    from treering.errors import (
        ConfigError,
        EvidenceError,
        NotFoundError,
        StoreError,
        TrainingError,
        TreeringError,
        UserError,
    )
    from treering.project import Project
    from treering.record.blend_dataset import BlendDataset
    from treering.record.run import Run
    from treering.record.start import start
    from treering.runlog.attempt import AttemptDirectory
    from treering.runlog.directory import CheckpointDirectory, RunDirectory
    from treering.runlog.find import find_checkpoint, find_run, find_runs
    from treering.runlog.ring import Ring

__version__ = "0.1.0"

__all__ = [
    "AttemptDirectory",
    "BlendDataset",
    "CheckpointDirectory",
    "ConfigError",
    "Corpus",
    "DataOrder",
    "EvidenceError",
    "NotFoundError",
    "Order",
    "Project",
    "ResolvedBlend",
    "Ring",
    "Run",
    "RunDirectory",
    "Schedule",
    "StoreError",
    "TrainingError",
    "TreeringError",
    "UserError",
    "find_checkpoint",
    "find_run",
    "find_runs",
    "load_experiment",
    "start",
]

__getattr__ = lazily(
    __name__,
    {
        "AttemptDirectory": "runlog.attempt",
        "BlendDataset": "record.blend_dataset",
        "CheckpointDirectory": "runlog.directory",
        "ConfigError": "errors",
        "Corpus": "data.corpus.corpus",
        "DataOrder": "data.order.treering1",
        "EvidenceError": "errors",
        "NotFoundError": "errors",
        "Order": "data.order.contract",
        "Project": "project",
        "ResolvedBlend": "config.resolved_blend",
        "Ring": "runlog.ring",
        "Run": "record.run",
        "RunDirectory": "runlog.directory",
        "Schedule": "config.schedule",
        "StoreError": "errors",
        "TrainingError": "errors",
        "TreeringError": "errors",
        "UserError": "errors",
        "find_checkpoint": "runlog.find",
        "find_run": "runlog.find",
        "find_runs": "runlog.find",
        "load_experiment": "config.load",
        "start": "record.start",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
