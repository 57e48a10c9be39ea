"""How the code of two attempts differs: by function, class and constant, from the recorded commits and diffs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from treering.collect.code import rule_of, run_git, sources_root
from treering.metrics.doubts import Doubt
from treering.reproduce.definitions import CodeChange, changed_definitions
from treering.reproduce.recorded_files import RecordedFiles

_UNTRACKED: Final = Doubt(
    "limited", "files that git does not track were not compared", "add them to the trainer's repository"
)
_IN_DIFF: Final = re.compile(r"^diff --git a/(.+) b/(.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CodeComparison:
    """The code of two attempts side by side.

    Attributes:
        same: whether everything that decides numbers is the same; None where that is not known.
        changes: what differs, by name.
        doubts: what limits the answer.
    """

    same: bool | None
    changes: tuple[CodeChange, ...]
    doubts: tuple[Doubt, ...]


def compare_code(first: Mapping[str, Any], second: Mapping[str, Any], folders: Sequence[Path] = ()) -> CodeComparison:
    """Compares what the headers of two attempts record about their code.

    Args:
        first: the record of one attempt.
        second: the record of the other attempt.
        folders: folders that may be in a repository with the recorded commits, beside the one of the code that is here.
    """
    if "script" in first and "script" in second:
        return _compare_foreign(first, second, folders)
    if "digest" not in first or "digest" not in second:
        text = "the code: the records are of two trainers and have no common form"
        return CodeComparison(None, (), (Doubt("missing", text, "`treering show RUN --full` shows each"),))
    one_rule = rule_of(first) == rule_of(second)
    if one_rule and first["digest"] == second["digest"]:
        return CodeComparison(same=True, changes=(), doubts=())
    old, new = first.get("sources"), second.get("sources")
    if old is None or new is None:
        doubt = Doubt("missing", "the files of the code: a record does not name them", "compare the commits by hand")
        return CodeComparison(False if one_rule else None, (), (doubt,))
    names = sorted(name for name in old.keys() | new.keys() if not one_rule or old.get(name) != new.get(name))
    here = sources_root(Path(__file__))
    files = [RecordedFiles(code, (here, *folders), here) for code in (first, second)]
    changes, doubts = _changes(files, names, differ=one_rule)
    return CodeComparison(False if one_rule or changes else None if doubts else True, changes, doubts)


def _compare_foreign(first: Mapping[str, Any], second: Mapping[str, Any], folders: Sequence[Path]) -> CodeComparison:
    codes = first, second
    scripts = [Path(str(code["script"])).parent for code in codes if code.get("script")]
    files = [RecordedFiles(code, [*scripts, *folders]) for code in codes]
    lacking = list(dict.fromkeys(each.lacking for each in files if each.lacking))
    digests = [code.get("script_digest") for code in codes]
    same_script = None if None in digests else digests[0] == digests[1]
    same_state = files[0].commit == files[1].commit and first.get("diff_digest") == second.get("diff_digest")
    if files[0].commit and same_state and same_script is not False:
        return CodeComparison(same=True, changes=(), doubts=(_UNTRACKED,))
    if lacking:
        text = f"the code by function: {'; '.join(lacking)}"
        doubt = Doubt("missing", text, "keep the trainer in git, and run this where its repository is")
        script = str(first.get("script"))
        if same_script is False:
            return CodeComparison(False, (CodeChange(script, "file", script, "changed"),), (doubt,))
        return CodeComparison(None, (), (doubt,))
    changes, doubts = _changes(files, _changed_names(files), differ=False)
    return CodeComparison(False if changes else None if doubts else True, changes, (*doubts, _UNTRACKED))


def _changed_names(files: Sequence[RecordedFiles]) -> list[str]:
    """The files that differ between two commits, or that a diff names."""
    one, other = files
    between = run_git(Path(str(one.repository)), "diff", "--name-only", one.commit, other.commit) or ""
    named = (name for each in files for pair in _IN_DIFF.findall(each.diff or "") for name in pair)
    return sorted({*filter(None, between.splitlines()), *named})


def _changes(
    files: Sequence[RecordedFiles], names: Sequence[str], *, differ: bool
) -> tuple[tuple[CodeChange, ...], tuple[Doubt, ...]]:
    """What differs in some files.

    Args:
        files: of both attempts.
        names: of the files.
        differ: whether these files are known to differ: one that cannot be rebuilt then counts whole.
    """
    (old, lost), (new, lost_too) = (each.read(names) for each in files)
    missing = {*lost, *lost_too}
    changes = []
    for name in names:
        if name not in missing:
            changes += changed_definitions(name, old[name], new[name])
        elif differ:
            changes.append(CodeChange(name, "file", name, "changed"))
    if not missing:
        return tuple(changes), ()
    reasons = dict.fromkeys(
        each.lacking or "the recorded commit with the recorded diff does not give the recorded digests"
        for each, without in zip(files, (lost, lost_too), strict=True)
        if without
    )
    text = f"{len(missing)} files were not compared by function: {'; '.join(reasons)}"
    return tuple(changes), (Doubt("limited", text, "run this in a clone of the code that has the commit"),)
