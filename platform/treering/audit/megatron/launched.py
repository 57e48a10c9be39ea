"""Steps of a run that one set of launch arguments launched, and the blend that these arguments make."""

from dataclasses import dataclass
from pathlib import Path

from treering.audit.megatron.report import Unbound
from treering.config.megatron import MegatronRun
from treering.data.megatron.blend import MegatronBlend
from treering.data.megatron.lineage import Lineage
from treering.errors import UserError


@dataclass(frozen=True, slots=True)
class Launched:
    """Steps of a run with the same launch arguments.

    Attributes:
        file: where the arguments are from: the YAML file of a description, or the newest checkpoint of these steps.
        run: the arguments; iteration and samples are those after the last of the steps.
        places: today's place of the data of each entry, without `.bin` and `.idx`.
        cache: today's place of Megatron's index cache, None where the run had none.
        changed: the arguments that differ from those of the steps before, in words.
        lineages: lineages of Megatron that may have launched the run; the answers are by the first.
        open_ends: what the arguments leave open.
        unbound: inputs that decide the order of these steps and are not confirmed.
    """

    file: Path
    run: MegatronRun
    places: tuple[Path, ...]
    cache: Path | None
    changed: tuple[str, ...]
    lineages: tuple[Lineage, ...]
    open_ends: tuple[str, ...]
    unbound: tuple[Unbound, ...]


def blend_by(lineage: Lineage, run: MegatronRun) -> MegatronBlend:
    """The blend of a run by the rules of a lineage.

    Raises:
        UserError: a run of the lineage cannot have such a blend.
    """
    return MegatronBlend(
        prefixes=tuple(entry.prefix for entry in run.data),
        weights=run.weights,
        seed=run.seed,
        sequence_length=run.sequence_length,
        num_samples=run.num_samples,
        split=run.split,
        surplus=run.surplus,
        extra_token=run.extra_token,
        lineage=lineage,
        ranges=run.parts,
        renormalized=bool(run.renormalized),
        exact_epochs=run.exact_epochs,
    )


def by_newer_python(lineage: Lineage, run: MegatronRun) -> Lineage | None:
    """The lineage on Python 3.12, where its `sum` gives a run other weights or shares; None elsewhere."""
    if lineage.python_sums == "none" or lineage.name != lineage.base:
        return None
    newer = lineage.on_python(12)
    try:
        old, new = blend_by(lineage, run), blend_by(newer, run)
        same = (old.shares, old.split_shares) == (new.shares, new.split_shares)
    except UserError:
        return None
    return None if same else newer


def accepts(lineage: Lineage, run: MegatronRun) -> bool:
    """Whether a run of the lineage can have the blend of this run."""
    try:
        blend_by(lineage, run)
    except UserError:
        return False
    return True
