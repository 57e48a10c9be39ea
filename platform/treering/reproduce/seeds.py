"""Whether a difference of results is within what seeds do, by the runs of the project that differ in seeds alone.

Runs of two configs are compared by the verdict on their groups (`treering.metrics.groups`). Two runs of one config,
such as a run and its reproduction, are compared with the spread over the other seeds of that config.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import stdev

from scipy import special

from treering.config.canonical import digest_json
from treering.errors import EvidenceError
from treering.metrics.contenders import AnyContender, contender_of
from treering.metrics.effects import ALPHA
from treering.metrics.groups import common_losses, compare_groups
from treering.runlog.find import AnyRun


@dataclass(frozen=True, slots=True)
class SeedVerdict:
    """A difference of held-out losses beside the noise of seeds.

    Attributes:
        step: the newest step at which all compared runs have a held-out loss; None where there is none.
        difference: loss of the second run minus that of the first, nats a token; of groups, of their means.
        seeds: how many seeds each config was trained with; of one config one number.
        within: whether the difference is within what seeds do; None where the noise is not known.
        text: the verdict in a sentence.
    """

    step: int | None
    difference: float | None
    seeds: tuple[int, ...]
    within: bool | None
    text: str


def judge_by_seeds(first: AnyRun, second: AnyRun, others: Iterable[AnyRun]) -> SeedVerdict:
    """Compares the results of two runs with what other seeds change.

    Args:
        first: one run.
        second: the other run.
        others: runs among which those of the same configs are looked for; one whose records do not hold is left out.

    Raises:
        EvidenceError: a record of the two runs does not hold.
    """
    sides = [contender_of(run) for run in (first, second)]
    configs = [digest_json(each.content) for each in sides]
    found: dict[str, list[AnyContender]] = {config: [] for config in configs}
    for run in others:
        try:
            if run.id in {first.id, second.id}:
                continue
            contender = contender_of(run)
            if (config := digest_json(contender.content)) in found and (contender.validated or contender.evaluated):
                found[config].append(contender)
        except EvidenceError:
            continue
    if configs[0] == configs[1]:
        return _of_one_config(sides[0], sides[1], found[configs[0]])
    runs = [side.run for side in sides] + [each.run for group in found.values() for each in group]
    compared = compare_groups(runs, data=False)
    verdict = compared.verdicts[0]
    effect = verdict.effect
    return SeedVerdict(
        compared.step,
        None if effect is None else effect.value,
        tuple(len(group.runs) for group in compared.groups),
        None if effect is None or math.isnan(effect.low) else not verdict.real,
        verdict.sentence,
    )


def _of_one_config(first: AnyContender, second: AnyContender, others: Iterable[AnyContender]) -> SeedVerdict:
    by_seeds = {digest_json(dict(each.seeds)): each for each in (*others, second, first)}
    members = {str(each.run.path): each for each in (first, second, *by_seeds.values())}
    step, _, losses, measure = common_losses(members)
    if step is None:
        text = (
            "No step has a held-out loss in both runs, so results were not compared; `treering evaluate` measures it."
        )
        return SeedVerdict(None, None, (len(by_seeds),), None, text)
    difference = losses[str(second.run.path)] - losses[str(first.run.path)]
    about = f"At step {step:,} the {measure} differs by {difference:+.4g} nat/token"
    if first.seeds != second.seeds:
        text = f"{about}; the configs differ in their seeds alone, so this is what seeds do."
        return SeedVerdict(step, difference, (len(by_seeds),), True, text)
    spread = [losses[str(each.run.path)] for each in by_seeds.values()]
    if len(spread) < 2 or not all(map(math.isfinite, (difference, *spread))):
        text = f"{about}; the noise of seeds is unknown with one seed, train more with `--set seed=N`."
        return SeedVerdict(step, difference, (len(by_seeds),), None, text)
    # Two draws differ by a normal variable of sqrt(2) standard deviations, which are estimated from few seeds.
    limit = float(special.stdtrit(len(spread) - 1, 1 - ALPHA / 2)) * math.sqrt(2) * stdev(spread)
    within = abs(difference) <= limit
    text = (
        f"{about}, {'within' if within else 'more than'} what seeds do: two of {len(spread)} seeds differ by up to "
        f"{limit:.4g} (95 %)."
    )
    return SeedVerdict(step, difference, (len(by_seeds),), within, text)
