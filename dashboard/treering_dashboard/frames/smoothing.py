"""Smoothing for curves that are compared: an exponential moving average weighted by the distance of its points."""

import math
from typing import Final

import numpy as np
import numpy.typing as npt

WEIGHT: Final = 0.9

_Floats = npt.NDArray[np.float64]


def smooth(x: _Floats, y: _Floats, segments: npt.NDArray[np.int64], weight: float = WEIGHT) -> _Floats:
    """Time-weighted, de-biased exponential moving average; starts anew in each segment.

    A point counts `weight` to the power of its distance, in mean distances of the curve, so that a denser stretch is
    not smoothed less. De-biased: the average of the first points is not pulled towards zero. NaN stays NaN and is
    skipped.

    Source: the estimator that Weights & Biases documents as "time weighted EMA"; its bias correction is Adam's
    (Kingma and Ba 2015, arXiv 1412.6980, section 3).

    Args:
        x: shape [n], ascending inside a segment.
        y: shape [n].
        segments: shape [n].
        weight: of a point one mean distance back.
    """
    result = np.full(len(y), math.nan)
    step = (float(x[-1]) - float(x[0])) / max(1, len(x) - 1) if len(x) else 0.0
    total = mass = last = 0.0
    segment = None
    for index, (at, value, of) in enumerate(zip(x.tolist(), y.tolist(), segments.tolist(), strict=True)):
        if of != segment:
            total = mass = 0.0
            segment, last = of, at
        if math.isnan(value):
            continue
        decay = weight ** ((at - last) / step) if step > 0 else weight
        total, mass, last = total * decay + value, mass * decay + 1.0, at
        result[index] = total / mass
    return result
