"""The lineages of Megatron: programs that order the same data alike, with the rules of each.

All lineages share the shuffles, the cutting into samples, and the greedy rule of a blend. They differ in how many
samples each dataset must give, in when the last epoch is shuffled apart, and in some roundings. One sample more or less
moves every sample after it, so an order is right only by the rules of the program that trained.

A lineage has the name of its program and of the first release with its rules. `megatron-core-X.Y` and
`megatron-core-X.Y.Z` name the lineage of a release: `megatron-core-0.12.3` is `megatron-core-0.11`.

With n samples of the run and a path's share w of the weights, a dataset of a blend must give ⌈n · w · 1.005⌉ samples,
or where it is rounded twice ⌈⌈n · w⌉ · 1.005⌉ (`megatron-core-0.13`: 1 + surplus in place of 1.005). Splits are rounded
at the places between two of them (bounds), or each by its number of sequences (sizes). One path of a split's own that
is a blend (`--train-data-path 1.0 PATH`) gets the margin; elsewhere such a path is read as it is. Where the last epoch
gives more samples than it has alone (one more, from the tokens left over), `bigscience` and Megatron-LM 2.5 end with an
error; the others continue. megatron-core lists the sequences of a dataset for as many epochs as its samples take.

By the rules of `megatron-core-0.13` a share is rounded twice, the last epoch is shuffled apart below 80 % of its
samples, bounds of splits are rounded, weights are added side by side, paths without weights weigh by their lengths, a
weight of 0 is refused, and one path of a split's own is never a blend. Python's `sum` adds weights and shares in
`gpt-neox`, shares alone in `megatron-lm-legacy`, `megatron-deepspeed` and `bigscience`, nothing in megatron-core.

Some programs add weights or the shares of a split with Python's `sum`, which rounds otherwise since Python 3.12. Such a
lineage has two more names, for runs whose version of Python is known: `gpt-neox-python3.11` and `gpt-neox-python3.12`.

`generation:` of older descriptions names several lineages, the one that it meant first: `core` is `megatron-core-0.13`;
`core-early` is `megatron-core-0.7`, then 0.11, 0.5 and 0.4; `legacy` is `megatron-lm-legacy`, then
`megatron-deepspeed`, `bigscience` and `gpt-neox`. A checkpoint's arguments narrow it.
"""

import re
from dataclasses import dataclass, replace
from typing import Final, Literal

from treering.errors import UserError

_MEGATRON_LM: Final = "github.com/NVIDIA/Megatron-LM"
_CORE: Final = "megatron/core/datasets: blended_megatron_dataset_builder.py, blended_dataset.py, gpt_dataset.py"
_FORK: Final = "megatron/data: gpt_dataset.py, blendable_dataset.py, dataset_utils.py"
_CORE_RELEASE: Final = re.compile(r"megatron-core-(?:v|r)?(\d+)\.(\d+)(?:\.\d+)?(?:rc\d+)?")
_PYTHON: Final = re.compile(r"(.+)-python3\.(\d{1,2})")
_COMPENSATED: Final = 12
"""Python 3.12 is the first whose `sum` of floats is compensated. Source: its "What's New", "Other Language Changes"."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """How one family of programs orders samples.

    Attributes:
        name: the value of `--lineage` and `lineage:`.
        programs: programs and releases that order data by these rules.
        source: repository, release or commit, and files that the rules were read from.
        share_rounding: a dataset of a blend must give its share of the samples with a margin. `once` rounds up
            samples * weight * margin; `twice` rounds up samples * weight before the margin and after it.
        surplus_argument: whether the margin is an argument of the run; elsewhere it is 0.5 %.
        blend_length: samples in a blend: the sum of what the datasets must give (`requested`), of their shares without
            the margin (`shares`), or of what the datasets have (`datasets`).
        apart_below: the last epoch is shuffled apart where it gives less than this part of its samples; None: never.
        last_epoch_excess: samples that the last epoch may give above those of a whole epoch; beyond, the program ends.
        split_rounding: whether the bounds of the splits are rounded, or their sizes.
        sum_in_turn: whether weights are added one after the other; numpy adds eight side by side.
        python_sums: what the program adds with Python's `sum`: nothing, the split's shares, or these and the weights.
        compensated: whether the program ran on Python 3.12 or later, whose `sum` corrects the rounding.
        without_weights: the meaning of several data paths without weights: their lengths are the weights, the weights
            are equal, or the program ends.
        zero_weight: whether a weight of 0 is accepted. Such a path can still give one sample, where all errors of the
            greedy rule are 0 and it is the first path.
        holds_empty: whether a path with weight 0 may hold less than a sample: never, always, or where the paths are for
            one split alone.
        blends_one_path: whether one path that is for one split alone is a blend: where it has a weight, always, never.
        renormalizes: whether `--renormalize-blend-weights` exists, which takes the requested samples as weights.
        refuses_overdraw: whether the program ends where a blend takes more samples of a dataset than it has.
        max_paths: data paths that a blend can hold.
        reads_last_sample: whether the last sample of a dataset counts.
        resumes_by_steps: whether a resumed run continues at steps * batch size, not at the samples consumed.
        exact_epochs: whether `--train-data-exact-num-epochs` exists.
        parts: whether `--train-weighted-split-paths` exists, which reads parts of the paths.
    """

    name: str
    programs: str
    source: str
    share_rounding: Literal["once", "twice"] = "once"
    surplus_argument: bool = False
    blend_length: Literal["requested", "shares", "datasets"] = "requested"
    apart_below: float | None = 0.80
    last_epoch_excess: int = 1
    split_rounding: Literal["bounds", "sizes"] = "sizes"
    sum_in_turn: bool = True
    python_sums: Literal["none", "split", "split and weights"] = "split"
    compensated: bool = False
    without_weights: Literal["lengths", "equal", "refused"] = "refused"
    zero_weight: bool = True
    holds_empty: Literal["never", "always", "own"] = "never"
    blends_one_path: Literal["weighted", "always", "never"] = "weighted"
    renormalizes: bool = False
    refuses_overdraw: bool = False
    max_paths: int = 254
    reads_last_sample: bool = True
    resumes_by_steps: bool = False
    exact_epochs: bool = False
    parts: bool = False

    @property
    def base(self) -> str:
        """The name without a version of Python."""
        found = _PYTHON.fullmatch(self.name)
        return self.name if found is None else found[1]

    def on_python(self, minor: int) -> "Lineage":
        """The lineage whose programs ran on Python 3.`minor`."""
        compensated = minor >= _COMPENSATED
        version = _COMPENSATED if compensated else _COMPENSATED - 1
        return replace(self, name=f"{self.base}-python3.{version}", compensated=compensated)

    def differences(self, other: "Lineage") -> list[tuple[str, str]]:
        """The rules that move samples and are not the other lineage's: attribute, and this lineage's rule in words."""
        return [(field, text) for field, text in self._rules() if getattr(self, field) != getattr(other, field)]

    def _rules(self) -> tuple[tuple[str, str], ...]:
        apart = "the last epoch is never shuffled apart"
        if self.apart_below is not None:
            apart = f"the last epoch is shuffled apart below {self.apart_below:.0%} of its samples"
        once = "once, with its margin" if self.share_rounding == "once" else "before its margin and after it"
        added = "weights" if self.python_sums == "split and weights" else "the shares of the split"
        one = {"weighted": "only with a weight", "always": "always", "never": "never"}[self.blends_one_path]
        alone = {"lengths": "weigh by their lengths", "equal": "weigh equally", "refused": "are refused"}
        return (
            ("share_rounding", f"a dataset's share is rounded up {once}"),
            ("apart_below", apart),
            ("split_rounding", f"the {self.split_rounding} of the splits are rounded"),
            ("sum_in_turn", f"weights are added {'one after the other' if self.sum_in_turn else 'side by side'}"),
            (
                "compensated",
                f"{added} are added by Python {'3.12 or later' if self.compensated else '3.11 or earlier'}",
            ),
            ("without_weights", f"paths without weights {alone[self.without_weights]}"),
            ("blends_one_path", f"one path of the split's own is a blend {one}"),
            ("zero_weight", f"a weight of 0 is {'accepted' if self.zero_weight else 'refused'}"),
            ("reads_last_sample", f"a dataset's last sample is {'read' if self.reads_last_sample else 'not read'}"),
        )


def _core(release: str, programs: str, source: str, **rules: object) -> Lineage:
    """A lineage of megatron-core from the release on that takes paths without weights."""
    common = {
        "split_rounding": "bounds",
        "sum_in_turn": False,
        "python_sums": "none",
        "without_weights": "lengths",
        "zero_weight": False,
        "blends_one_path": "never",
        "refuses_overdraw": True,
        "max_paths": 32_766,
    }
    name = f"megatron-core-{release}"
    return Lineage(name, programs, f"{_MEGATRON_LM}, {source}: {_CORE}", **{**common, **rules})  # type: ignore[arg-type]


CORE: Final = _core(
    "0.13",
    "Megatron-LM with megatron-core 0.13 to 0.19",
    "core_v0.13.0 (c550cf6c41) to core_v0.19.0 (5be9626709)",
    share_rounding="twice",
    surplus_argument=True,
    blend_length="shares",
)
"""The lineage of a run whose arguments name none."""

_ALL: Final = (
    CORE,
    _core(
        "0.11",
        "Megatron-LM with megatron-core 0.11 and 0.12; forks that follow them, as llm-jp's and swiss-ai's of 2025",
        "core_v0.11.0 (aa6207e2da), core_v0.12.0 (d580efc68a); the rounding since 85676ca489",
        share_rounding="twice",
        blend_length="shares",
    ),
    _core(
        "0.7",
        "Megatron-LM with megatron-core 0.7 to 0.10",
        "core_v0.7.0, core_v0.10.0 (7ee599a25c)",
        renormalizes=True,
    ),
    _core(
        "0.5",
        "Megatron-LM with megatron-core 0.5 and 0.6",
        "core_v0.5.0 (0acc240ebd), core_v0.6.0",
        without_weights="refused",
        zero_weight=True,
        holds_empty="always",
        blends_one_path="weighted",
        refuses_overdraw=False,
    ),
    _core(
        "0.4",
        "Megatron-LM with megatron-core 0.4, late 2023",
        "core_v0.4.0 (38879f8b3f)",
        split_rounding="sizes",
        without_weights="refused",
        blends_one_path="weighted",
        refuses_overdraw=False,
    ),
    Lineage(
        "megatron-lm-legacy",
        "Megatron-LM 2.0 (January 2021) to 23.06, before megatron-core had datasets",
        f"{_MEGATRON_LM}, v2.5 (e269e20064), 23.06 (4f8e9ac412): {_FORK}",
    ),
    Lineage(
        "megatron-deepspeed",
        "Megatron-DeepSpeed of deepspeedai (earlier: of microsoft)",
        f"github.com/deepspeedai/Megatron-DeepSpeed, 4efb479d: {_FORK}",
        exact_epochs=True,
    ),
    Lineage(
        "bigscience",
        "Megatron-DeepSpeed of bigscience-workshop (BLOOM) from November 2021 on",
        f"github.com/bigscience-workshop/Megatron-DeepSpeed, 8387ae17: {_FORK}",
        blend_length="datasets",
        apart_below=0.95,
        last_epoch_excess=0,
        holds_empty="own",
        blends_one_path="never",
        parts=True,
    ),
    Lineage(
        "gpt-neox",
        "GPT-NeoX of EleutherAI from version 1.0 on (GPT-NeoX-20B, Pythia), with packed samples",
        "github.com/EleutherAI/gpt-neox, v1.0 to ea7aefd8: megatron/data: gpt2_dataset.py, data_utils.py, "
        "blendable_dataset.py",
        blend_length="datasets",
        apart_below=None,
        python_sums="split and weights",
        without_weights="equal",
        blends_one_path="always",
        reads_last_sample=False,
        resumes_by_steps=True,
    ),
)
LINEAGES: Final = {lineage.name: lineage for lineage in _ALL}
"""All lineages by name, the newest megatron-core first."""
LINEAGE_NAMES: Final = (
    *LINEAGES,
    *(
        lineage.on_python(minor).name
        for lineage in _ALL
        if lineage.python_sums != "none"
        for minor in (_COMPENSATED - 1, _COMPENSATED)
    ),
)
"""Every name that states a lineage."""
EXPECTED_LINEAGE: Final = (
    f"one of {', '.join(LINEAGES)}, or a release of megatron-core from 0.4 on as megatron-core-0.12; "
    "docs/data-order.md lists the programs of each lineage"
)
"""What an error about a lineage's name expects."""
MAX_PATHS: Final = max(lineage.max_paths for lineage in _ALL)
"""The most data paths that a blend of any lineage can hold."""
_CORE_STARTS: Final = ((13, "0.13"), (11, "0.11"), (7, "0.7"), (5, "0.5"), (4, "0.4"))
"""Minor releases of megatron-core that began a lineage, newest first."""
GENERATIONS: Final = {
    "core": ("megatron-core-0.13",),
    "core-early": ("megatron-core-0.7", "megatron-core-0.11", "megatron-core-0.5", "megatron-core-0.4"),
    "legacy": ("megatron-lm-legacy", "megatron-deepspeed", "bigscience", "gpt-neox"),
}
"""The lineages behind the names of an older description, the one that it meant first."""


def lineage_named(name: str) -> Lineage:
    """The lineage of a name, or of a release of megatron-core (`megatron-core-0.12.3`).

    Raises:
        UserError: no lineage has that name.
    """
    python = _PYTHON.fullmatch(name)
    if python is not None and python[1] in LINEAGES and LINEAGES[python[1]].python_sums != "none":
        return LINEAGES[python[1]].on_python(int(python[2]))
    release = _CORE_RELEASE.fullmatch(name)
    if release is not None and release[1] == "0":
        minor = int(release[2])
        name = next((f"megatron-core-{start}" for first, start in _CORE_STARTS if minor >= first), name)
    if name not in LINEAGES:
        raise UserError(f"lineage {name!r}, expected {EXPECTED_LINEAGE}")
    return LINEAGES[name]


def lineages_of_generation(generation: str) -> tuple[Lineage, ...]:
    """The lineages of a `generation` of an older description, the one that it meant first."""
    return tuple(LINEAGES[name] for name in GENERATIONS[generation])
