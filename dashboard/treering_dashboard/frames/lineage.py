"""What a checkpoint was made from, as a graph: sources, corpora, blends, runs, and the checkpoint."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from treering.audit.report import AuditReport
from treering.config.canonical import short
from treering.config.resolved import Resolved
from treering.errors import EvidenceError
from treering.runlog.directory import CheckpointDirectory, RunDirectory
from treering_dashboard.frames.blends import sources

TITLES: Final = ("source", "corpus", "blend", "run", "checkpoint")
"""Layers of the graph."""
_NAMED: Final = 3
"""Sources of a corpus that are named one by one."""


@dataclass(frozen=True, slots=True)
class Node:
    """A thing in the graph.

    Attributes:
        key: names it for edges.
        layer: number of its column, from 0.
        label: its name.
        detail: what is said of it when it is pointed at.
    """

    key: str
    layer: int
    label: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """What a thing was made from.

    Attributes:
        source: key of the node that was read.
        target: of the one that read it.
        share: how much of the target came from it; the line's thickness.
    """

    source: str
    target: str
    share: float = 0.2


@dataclass
class _Graph:
    nodes: dict[str, Node] = field(default_factory=dict)
    edges: dict[tuple[str, str], Edge] = field(default_factory=dict)

    def add(self, layer: str, key: str, label: str, detail: str) -> None:
        """Adds a node, once."""
        self.nodes.setdefault(key, Node(key, TITLES.index(layer), label, detail))

    def join(self, source: str, target: str, share: float) -> None:
        """Adds an edge, once, where both ends are there."""
        if source in self.nodes and target in self.nodes:
            self.edges.setdefault((source, target), Edge(source, target, share))


def lineage(checkpoint: CheckpointDirectory, report: AuditReport) -> tuple[list[Node], list[Edge]]:
    """Sources, corpora, blends and runs that led to a checkpoint.

    Args:
        checkpoint: the checkpoint.
        report: its audit.

    Raises:
        EvidenceError: the checkpoint's manifest or its run's config does not hold.
    """
    graph = _Graph()
    _corpora(graph, report)
    runs = list(dict.fromkeys(part.run for part in report.path)) or [report.run]
    for run in runs:
        steps = (part for part in report.path if part.run == run)
        detail = ", ".join(f"attempt {part.attempt}: {part.first_step:,} to {part.last_step:,}" for part in steps)
        graph.add("run", f"run {run}", f"run {run[:8]}", detail)
        _blend(graph, run, _config(checkpoint, run))
    for before, after in pairwise(runs):
        graph.join(f"run {before}", f"run {after}", 0.3)
    graph.add("checkpoint", "checkpoint", checkpoint.path.name, f"digest {short(checkpoint.digest, 12)}")
    graph.join(f"run {runs[-1]}", "checkpoint", 1.0)
    return list(graph.nodes.values()), list(graph.edges.values())


def _corpora(graph: _Graph, report: AuditReport) -> None:
    found = sources(report)
    total = sum(usage.samples for usage in report.corpora) or 1
    for usage in report.corpora:
        key, own = f"corpus {usage.corpus}", found[usage.corpus]
        graph.add("corpus", key, usage.corpus, f"{usage.licence or 'licence not known'}, {usage.tokens:,} tokens read")
        if own:
            more = "" if len(own) <= _NAMED else f" and {len(own) - _NAMED} more"
            label = own[0] if len(own) == 1 else f"{len(own)} sources"
            graph.add("source", f"source {own}", label, ", ".join(own[:_NAMED]) + more)
            graph.join(f"source {own}", key, usage.samples / total)


def _blend(graph: _Graph, run: str, config: Resolved | None) -> None:
    if config is None:
        return
    key = f"blend {config.blend.digest}"
    graph.add("blend", key, f"blend {short(config.blend.digest)}", f"seed {config.blend.seed}")
    for component in config.blend.components:
        graph.join(f"corpus {component.corpus}", key, float(component.weight))
    graph.join(key, f"run {run}", 1.0)


def _config(checkpoint: CheckpointDirectory, run: str) -> Resolved | None:
    """The config of a run on the path, None where it is missing."""
    if run == checkpoint.run.path.name:
        return checkpoint.run.resolved
    try:
        return RunDirectory(checkpoint.run.path.parent / run).resolved
    except EvidenceError:
        return None
