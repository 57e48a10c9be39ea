"""Checks the nodes of an attempt before it begins: the same code and packages, the same folders and corpora.

The first rank of each node inspects the node, then all ranks exchange what they found. So one error names all nodes
that differ, and every rank ends. Without this check a difference would show hours later, at the first save, or never.

An error names each node that

- cannot train: world size, memory;
- has other code (the code digest and the rest of the trainer), packages, or variables than the first node, with the
  difference;
- does not see in the run's folder what rank 0 wrote there, cannot write there, or what it wrote never appears
  elsewhere;
- lacks a corpus, or has another one than the blend names.

A node without even the config reports it under its own name; the others wait for it until their launcher ends them.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import torch.distributed

from treering.collect.code import code_difference
from treering.collect.environment import numeric_variables
from treering.config.resolved_blend import ResolvedBlend
from treering.errors import TreeringError, UserError
from treering.files import write_durably
from treering.project import Project
from treering_trainer.core.batch_reader import open_corpora
from treering_trainer.core.topology import broadcast

_PATIENCE_S: Final = 5.0
"""A network file system may show a new file to other nodes a moment later."""

_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class Node:
    """One node of an attempt, as its first rank sees it.

    Attributes:
        host: its name.
        rank: number of its first rank.
        environment: the node's `collect_environment`.
        code: the node's `code_record`.
        refusal: why the node cannot train, empty if it can.
    """

    host: str
    rank: int
    environment: Mapping[str, Any]
    code: Mapping[str, Any]
    refusal: str = ""

    def to_record(self) -> dict[str, Any]:
        """The node's entry in the attempt's header: names and versions that may differ without changing a number."""
        system = self.environment["system"]
        drivers = sorted({device["driver"] for device in self.environment["devices"] if device["driver"]})
        devices = [device["name"] for device in self.environment["devices"] if device["kind"] != "cpu"]
        return {
            "host": self.host,
            "rank": self.rank,
            "devices": devices or [system["cpu"]],
            "driver": ", ".join(drivers) or None,
            "kernel": system["kernel"],
            "memory_bytes": system["memory_bytes"],
        }


def check_same(look: Callable[[], Node]) -> tuple[Node, ...]:
    """Compares every node with the first node; collective.

    Args:
        look: describes this node; called on the node's first rank.

    Returns:
        All nodes, by rank.

    Raises:
        UserError: on every rank; names the nodes that cannot train, or that differ, and how.
    """
    own: tuple[str, str, str, int] | None = None
    node: Node | None = None
    if _is_first_of_node():
        node = look()
        own = (str(node.environment["digest"]), str(node.code["digest"]), node.refusal, node.rank)
    words = [each for each in _gather(own) if each is not None]
    differing = any(each[:2] != words[0][:2] or each[2] for each in words)
    full = _gather(node if node is None or differing else _brief(node))
    nodes = tuple(each for each in full if each is not None)
    refused = [each for each in nodes if each.refusal]
    if refused:
        raise UserError(_by_node([(each, each.refusal) for each in refused]))
    differences = [(each, _differences(nodes[0], each)) for each in nodes[1:]]
    differences = [(each, text) for each, text in differences if text]
    if differences:
        raise UserError(
            f"nodes differ from {nodes[0].host} (rank {nodes[0].rank}): {_by_node(differences)}; every node must run "
            "the same code, packages and variables, since an attempt records one environment: make them equal, "
            "or leave these nodes out"
        )
    return nodes


def check_shared(run: Path, project: Path, blend: ResolvedBlend) -> None:
    """Checks that every node shares the run's folder with rank 0, can write there, and has the blend's corpora.

    Collective. All nodes check rank 0's paths.

    Args:
        run: the run's directory.
        project: where the data is.
        blend: the data to train on.

    Raises:
        UserError: on every rank; names the nodes that lack the folder or a corpus.
    """
    rank, host = torch.distributed.get_rank(), os.uname().nodename
    token, problem = uuid4().hex, ""
    if rank == 0:
        try:
            _meeting(run, token).mkdir(parents=True)
            write_durably(_meeting(run, token) / "token", token)
        except OSError as error:
            problem = _cannot_write(run, error)
    run, project, token, problem = broadcast((run, project, token, problem))
    meeting = _meeting(run, token)
    if problem:
        raise UserError(f"{problem}; expected a folder that all nodes share, writable")
    if _is_first_of_node():
        problem = _look_at_run(meeting, token, rank) or _look_at_data(project, blend)
    found = [each for each in _gather((host, rank, problem) if _is_first_of_node() else None) if each is not None]
    if rank == 0:
        unseen = [each for each in found if not each[2] and not _appears(meeting / f"rank-{each[1]}")]
        late = f"{run}: what this node wrote there is not visible on {host}"
        found = [(*each[:2], late) if each in unseen else each for each in found]
        _remove(meeting)
    found = broadcast(found)
    problems = [f"{where} (rank {number}): {text}" for where, number, text in found if text]
    if problems:
        raise UserError(
            f"nodes without what every node needs: {_listed(problems)}; runs/ and data/ must be on a writable file "
            "system that all nodes share at the same path: mount it there, or leave these nodes out"
        )


def _is_first_of_node() -> bool:
    return int(os.environ.get("LOCAL_RANK", "0")) == 0


def _gather(value: Any) -> list[Any]:
    box: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(box, value)
    return box


def _brief(node: Node) -> Node:
    """The node without what all nodes have in common: 280 package lists would be megabytes on every rank."""
    kept = {key: node.environment[key] for key in ("digest", "system", "devices")}
    return Node(node.host, node.rank, kept, {key: node.code[key] for key in ("digest", "rule")}, node.refusal)


def _differences(first: Node, other: Node) -> str:
    """The differences that could change numbers, in words; empty for none."""
    found = []
    if first.environment["digest"] != other.environment["digest"]:
        found += _unequal("package", first.environment["numeric_packages"], other.environment["numeric_packages"])
        found += _unequal("variable", *(numeric_variables(each.environment["variables"]) for each in (first, other)))
        for key in ("python", "device_kinds"):
            if first.environment[key] != other.environment[key]:
                found.append(f"{key} {other.environment[key]} (there {first.environment[key]})")
    if code := code_difference(first.code, other.code):
        found.append(f"code ({code})")
    return _listed(found)


def _unequal(title: str, first: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return [
        f"{title} {name} {'absent' if theirs is None else theirs} (there {'absent' if ours is None else ours})"
        for name, ours, theirs in _pairs(first, other)
    ]


def _pairs(first: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    names = sorted(first.keys() | other.keys())
    return [(name, first.get(name), other.get(name)) for name in names if first.get(name) != other.get(name)]


def _by_node(found: Sequence[tuple[Node, str]]) -> str:
    """Each text once, after the nodes that it is about."""
    nodes: dict[str, list[str]] = {}
    for node, text in found:
        nodes.setdefault(text, []).append(f"{node.host} (rank {node.rank})")
    return "; ".join(f"{_listed(names)}: {text}" for text, names in nodes.items())


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more


def _meeting(run: Path, token: str) -> Path:
    return run / f".meeting-{token}"


def _look_at_run(meeting: Path, token: str, rank: int) -> str:
    if not _appears(meeting / "token"):
        return f"{meeting.parent}: what rank 0 wrote there is not visible"
    try:
        if (meeting / "token").read_text(encoding="utf-8") != token:
            return f"{meeting.parent}: what rank 0 wrote there has other content"
        (meeting / f"rank-{rank}").touch()
    except OSError as error:
        return _cannot_write(meeting.parent, error)
    return ""


def _cannot_write(run: Path, error: OSError) -> str:
    return f"{run}: cannot be written ({error.strerror or error})"


def _look_at_data(project: Path, blend: ResolvedBlend) -> str:
    try:
        open_corpora(Project(project), blend)
    except TreeringError as error:
        return str(error)
    return ""


def _appears(path: Path) -> bool:
    until = time.monotonic() + _PATIENCE_S
    while not path.exists():
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


def _remove(meeting: Path) -> None:
    for path in (*meeting.glob("*"), meeting):
        try:
            path.rmdir() if path == meeting else path.unlink()
        except OSError:  # harmless: the next start makes another folder
            return
