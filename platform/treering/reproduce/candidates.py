"""What the records say changed between two trainings, in the order in which it is most likely the cause.

Each candidate knows how a trial goes back to what the first training had, or what a test would need.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import ValidationError

from treering.collect.code import code_difference
from treering.config.layout import Layout
from treering.config.operation import KernelConfig
from treering.metrics.compare import Difference
from treering.metrics.environments import EnvironmentDifference, compare_environments
from treering.redact import HIDDEN
from treering.reproduce.code import CodeComparison
from treering.reproduce.listed import listed
from treering.reproduce.sources import present_code
from treering.reproduce.trial import THREADS_VARIABLE, Conditions
from treering.runlog.records import AttemptHeader

Kind = Literal[
    "data", "config", "code", "environment", "variables", "device", "threads", "kernels", "determinism", "layout",
    "restart", "unrecorded", "nondeterminism",
]  # fmt: skip
Outcome = Literal["cause", "part", "not_cause", "untested"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something that may have made two trainings different.

    Attributes:
        kind: what kind of thing changed.
        text: what changed, from the first training to the second, in words.
        outcome: `cause` where it alone explains the difference, `part` where it does together with others,
            `not_cause` where a test excluded it, else `untested`.
        evidence: how that is known; for an untested one what a test needs.
    """

    kind: Kind
    text: str
    outcome: Outcome
    evidence: str

    def found(self, outcome: Outcome, evidence: str) -> "Candidate":
        """The same with the outcome of its test."""
        return replace(self, outcome=outcome, evidence=evidence)


@dataclass(frozen=True, slots=True)
class Switch:
    """A candidate that a trial can test.

    Attributes:
        candidate: the candidate.
        back: fields of `Conditions` that give what the first training had.
        tested: what the trial changes, in words.
    """

    candidate: Candidate
    back: Mapping[str, Any]
    tested: str

    def applied(self, conditions: Conditions) -> Conditions:
        """The conditions with what the first training had; environment variables are added to those that are set."""
        back = dict(self.back)
        if "variables" in back:
            back["variables"] = {**conditions.variables, **back["variables"]}
        return replace(conditions, **back)


def config_candidate(config: tuple[Difference, ...] | None) -> Candidate | None:
    """The settings that differ and can change numbers, None where there is no such setting."""
    names = (
        "recipe.",
        "attempt.parallel.activation_recompute",
        "attempt.parallel.recompute_interval",
        "attempt.hooks",
    )
    changed = [each for each in config or () if each.path.startswith(names) and each.path != "recipe.blend"]
    if not changed:
        return None
    texts = [f"{each.path.removeprefix('recipe.')} {each.values[0]} to {each.values[1]}" for each in changed]
    return Candidate("config", f"config: {listed(texts)}", "untested", "needs a trial with the recorded config")


def conditions_of(header: AttemptHeader, given: Conditions) -> Conditions:
    """The conditions of a recorded attempt: its kernels, mode, layout and threads, and what is given for it."""
    variables = {**given.variables, **_threads_of(header)}
    return replace(
        given,
        variables=variables,
        kernels=header.config.kernels,
        layout=header.layout,
        deterministic=header.config.deterministic,
    )


def _threads_of(header: AttemptHeader) -> dict[str, str]:
    """The variable that gives each rank as many threads as on record; on a GPU, threads add nothing up."""
    threads = header.environment.get("threads_per_rank")
    return {THREADS_VARIABLE: str(threads)} if threads and header.layout.device == "cpu" else {}


def condition_candidates(
    first: AttemptHeader, second: AttemptHeader, recorded: Conditions, code: CodeComparison | None
) -> Iterator[Switch | Candidate]:
    """What differs between the attempts that did the divergent step, beside data and config.

    Args:
        first: header of the first training's attempt.
        second: header of the second's.
        recorded: source tree and Python of the first training, where they are available.
        code: what differs between their codes, by function; None where that was not compared.
    """
    yield from _code(first, second, recorded, code)
    yield from _environment(first, second, recorded)
    yield from _kernels(first, second)
    yield from _determinism(first, second)
    yield from _layout(first, second)


def _code(
    first: AttemptHeader, second: AttemptHeader, recorded: Conditions, code: CodeComparison | None
) -> Iterator[Switch | Candidate]:
    if not (files := code_difference(first.code, second.code)):
        return
    text = listed([each.sentence for each in code.changes]) if code is not None and code.changes else files
    commit = first.code.get("commit")
    needs = f"needs the recorded code, commit {commit} with its diff" if commit else "needs the recorded code"
    found = Candidate("code", f"code: {text}", "untested", needs)
    if recorded.sources is None and code_difference(first.code, present_code()):
        yield found
    else:
        yield Switch(found, {"sources": recorded.sources}, "the recorded code")


def _environment(first: AttemptHeader, second: AttemptHeader, recorded: Conditions) -> Iterator[Switch | Candidate]:
    found = compare_environments(first.environment, second.environment).differences
    packages = [each for each in found if each.numeric and each.kind in {"python", "package"}]
    if packages:
        needs = f"needs a Python with {listed([f'{each.name} {each.first}' for each in packages])}: `--environment`"
        candidate = Candidate("environment", f"environment: {_words(packages)}", "untested", needs)
        switch = Switch(candidate, {"python": recorded.python}, "the recorded environment")
        yield candidate if recorded.python is None else switch
    yield from _variables([each for each in found if each.numeric and each.kind == "variable"])
    if first.layout.device != second.layout.device:
        text = f"device: {first.layout.device} to {second.layout.device}"
        candidate = Candidate("device", text, "untested", f"needs a machine with the device {first.layout.device}")
        on_cpu = Switch(candidate, {"variables": {"DS_ACCELERATOR": "cpu"}}, "the processor")
        yield on_cpu if first.layout.device == "cpu" else candidate
    machine = [each for each in found if each.kind in {"device", "driver", "system"} and each.name != "threads"]
    if machine:
        needs = f"needs a machine with {listed([f'{each.name} {each.first}' for each in machine])}"
        yield Candidate("device", f"machine: {_words(machine)}", "untested", needs)
    threads = [each.environment.get("threads_per_rank") for each in (first, second)]
    if threads[0] != threads[1] and _same_layout(first, second):
        text = f"threads of a rank: {threads[0]} to {threads[1]}"
        candidate = Candidate("threads", text, "untested", "needs a record of how many")
        back = {"variables": _threads_of(first)}
        yield Switch(candidate, back, "the recorded threads") if back["variables"] else candidate


def _variables(found: list[EnvironmentDifference]) -> Iterator[Switch | Candidate]:
    if not found:
        return
    candidate = Candidate("variables", f"variables: {_words(found)}", "untested", "needs values that were not recorded")
    if any(HIDDEN in (each.first or "") for each in found):
        yield candidate
    else:
        yield Switch(candidate, {"variables": {each.name: each.first for each in found}}, "the recorded variables")


def _kernels(first: AttemptHeader, second: AttemptHeader) -> Iterator[Switch | Candidate]:
    used = [{each.operation: each.used for each in header.kernels} for header in (first, second)]
    asked = [header.config.kernels.model_dump() for header in (first, second)]
    ran_other = [name for name in used[0] if used[0][name] != used[1].get(name)]
    changed = ran_other or [name for name in asked[0] if asked[0][name] != asked[1][name]]
    if not changed:
        return
    words = [
        f"{name} {used[0].get(name, asked[0].get(name))} to {used[1].get(name, asked[1].get(name))}" for name in changed
    ]
    candidate = Candidate("kernels", f"kernel: {listed(words)}", "untested", "needs a device that has these kernels")
    by_name = {name: used[0][name] for name in ran_other if name in asked[0] and asked[0][name] == asked[1][name]}
    try:
        back = KernelConfig.model_validate({**asked[0], **by_name})
    except ValidationError:  # the kernel that ran is the library's choice: nobody can ask for it
        yield candidate
    else:
        yield Switch(candidate, {"kernels": back}, "the recorded kernels")


def _determinism(first: AttemptHeader, second: AttemptHeader) -> Iterator[Switch]:
    modes = [header.config.deterministic for header in (first, second)]
    if modes[0] == modes[1]:
        return
    words = ["on" if mode else "off" for mode in modes]
    candidate = Candidate("determinism", f"deterministic mode: {words[0]} to {words[1]}", "untested", "needs a trial")
    yield Switch(candidate, {"deterministic": modes[0]}, "the recorded deterministic mode")


def _layout(first: AttemptHeader, second: AttemptHeader) -> Iterator[Switch | Candidate]:
    if _same_layout(first, second):
        return
    changed = [name for name in Layout.model_fields if getattr(first.layout, name) != getattr(second.layout, name)]
    text = f"layout: {first.layout} to {second.layout} (TP x PP x DP)"
    others = [name for name in changed if name not in {"tensor", "pipeline", "data"}]
    text += "".join(f", {name} {getattr(first.layout, name)} to {getattr(second.layout, name)}" for name in others)
    candidate = Candidate("layout", text, "untested", f"needs {first.layout.world_size} devices")
    yield Switch(candidate, {"layout": first.layout, "variables": _threads_of(first)}, "the recorded layout")


def _same_layout(first: AttemptHeader, second: AttemptHeader) -> bool:
    return all(getattr(first.layout, name) == getattr(second.layout, name) for name in Layout.model_fields)


def _words(found: list[EnvironmentDifference]) -> str:
    return listed([f"{each.name} {each.first or 'unset'} to {each.second or 'unset'}" for each in found])
