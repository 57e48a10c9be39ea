"""What a data order takes from each corpus: planned by the weights alone, and realised by the order's own counts.

Asked before training by `treering plan` and stage `blend`; the audit asks the same of a checkpoint.
"""

from dataclasses import dataclass
from fractions import Fraction

from treering.config.resolved_blend import ResolvedBlend
from treering.data.order.treering1 import DataOrder


@dataclass(frozen=True, slots=True)
class ComponentShare:
    """What a range of samples of a data order takes from one corpus.

    Attributes:
        corpus: name of the corpus.
        weight: its share, the blend's decimal string.
        num_tokens: tokens of the corpus.
        epoch_samples: samples of one epoch.
        planned_samples: weight x samples, a fraction of a sample included.
        samples: samples that the order really takes.
    """

    corpus: str
    weight: str
    num_tokens: int
    epoch_samples: int
    planned_samples: float
    samples: int

    @property
    def planned_epochs(self) -> float:
        """Epochs that the weight asks for."""
        return self.planned_samples / self.epoch_samples

    @property
    def epochs(self) -> float:
        """Epochs that the order really reads."""
        return self.samples / self.epoch_samples


def component_shares(blend: ResolvedBlend, lo: int, hi: int) -> list[ComponentShare]:
    """What samples [lo, hi) take from each component; declared corpora have shares too.

    Raises:
        UserError: a corpus is shorter than one sample.
    """
    order = DataOrder(blend)
    return [
        ComponentShare(
            corpus=component.corpus,
            weight=component.weight,
            num_tokens=component.num_tokens,
            epoch_samples=component.num_samples,
            planned_samples=float(Fraction(component.weight) * (hi - lo)),
            samples=after - before,
        )
        for component, before, after in zip(order.components, order.counts(lo), order.counts(hi), strict=True)
    ]
