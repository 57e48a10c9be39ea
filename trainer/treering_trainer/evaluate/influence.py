"""What each text adds to a perplexity of whole texts, so that two checkpoints can be compared text by text.

lm-eval divides the sum of the texts' log-likelihoods by the sum of their words or bytes, and gives no standard error.
"""

import math
from collections.abc import Mapping
from typing import Final

RATIOS: Final = {"word_perplexity": (1.0, True), "byte_perplexity": (1.0, True), "bits_per_byte": (math.log(2), False)}
"""By metric: nats of its unit, and whether it is the exponential of the ratio."""


def influence(metric: str, texts: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """The metric linearised in each text: the mean of the values is the metric, their standard error is the metric's.

    Source: influence function of a ratio of sums (Hampel, Journal of the American Statistical Association 69, 1974); it
    leaves out the curvature of the exponential.

    Args:
        metric: one of `RATIOS`.
        texts: by item, log-likelihood in nats, and words or bytes.
    """
    unit, exponential = RATIOS[metric]
    total = math.fsum(weight for _, weight in texts.values())
    ratio = -math.fsum(value for value, _ in texts.values()) / unit / total
    score = math.exp(ratio) if exponential else ratio
    slope = (score if exponential else 1.0) * len(texts) / total
    return {item: score + slope * (-value / unit - ratio * weight) for item, (value, weight) in texts.items()}
