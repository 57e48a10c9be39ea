"""Whether a checkpoint may have an alias such as `production`: what the policy asks for, and what the audit reached."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from treering.audit.report import Finding, Level
from treering.config.settings import read_settings
from treering.errors import ConfigError, EvidenceError, UserError
from treering.project import Project

DEFAULT_LEVEL: Final = Level.CONTENT_BOUND
"""What an alias asks for that the policy does not name."""

_ALIAS: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NOT_IN_MLFLOW: Final = re.compile(r"(?i)latest|v\d+")


@dataclass(frozen=True, slots=True)
class Required:
    """What an alias asks for.

    Attributes:
        alias: the alias.
        level: the lowest level that a checkpoint must reach.
        by: who says so.
    """

    alias: str
    level: Level
    by: str


def required_level(project: Project, alias: str) -> Required:
    """The level that a project asks for before a checkpoint gets an alias.

    Raises:
        UserError: the alias is not one.
        ConfigError: the project's settings are wrong.
    """
    if _ALIAS.fullmatch(alias) is None or _NOT_IN_MLFLOW.fullmatch(alias):
        raise UserError(
            f"--alias: found {alias!r}, expected a word of letters, digits, dots and dashes; latest, and v with a "
            "number, are MLflow's own"
        )
    file = project.settings
    if not file.exists():
        return Required(alias, DEFAULT_LEVEL, f"the default, since {file.name} is missing")
    promotion = read_settings(project).promotion
    for name, level in promotion.items():
        if level not in set(Level):
            raise ConfigError(str(file), f"promotion.{name}", repr(level), f"one of {', '.join(Level)}")
    if alias not in promotion:
        return Required(alias, DEFAULT_LEVEL, f"the default, since {file} does not name the alias")
    return Required(alias, Level(promotion[alias]), f"promotion.{alias} in {file}")


def check_promotion(
    checkpoint: str,
    required: Required,
    reached: Sequence[Level],
    findings: Sequence[Finding],
    not_proven: Sequence[str],
) -> None:
    """Refuses a checkpoint whose audit does not reach the level.

    Args:
        checkpoint: its folder.
        required: what the alias asks for.
        reached: the levels that the audit reached, lowest first: a signature replaces no level below it.
        findings: what does not hold.
        not_proven: what stays open.

    Raises:
        EvidenceError: the checkpoint does not reach the level, or something does not hold.
    """
    if not findings and required.level in reached:
        return
    found = str(reached[-1])
    if list(Level).index(reached[-1]) > list(Level).index(required.level):
        found += f" without {required.level}"
    why = findings[0].text if findings else not_proven[0] if not_proven else ""
    more = f" (and {len(findings) - 1} more findings)" if len(findings) > 1 else ""
    raise EvidenceError(
        f"{checkpoint}: not promoted to {required.alias}: found level {found}"
        f"{f' with {len(findings)} findings' if findings else ''}, expected {required.level} by {required.by}: {why}"
        f"{more}; {_remedy(required.level)}",
        found=found,
        expected=str(required.level),
        remedy=_remedy(required.level),
    )


def _remedy(level: Level) -> str:
    return {
        Level.REPLAYED: "`treering promote --replay K` also trains K steps again",
        Level.ATTESTED: "`treering attest` signs a checkpoint, and `treering promote --public-key FILE` checks that",
    }.get(level, "`treering audit --verify` shows all that is missing")
