"""A measurement of bias as a table: the probabilities and texts of a model whose bias is known."""

import math
from typing import Any

import numpy as np

from treering.config.bias import BiasLists, BiasSettings
from treering.config.canonical import digest_bytes
from treering.runlog.analyses import Bias, BiasAxisRecord, BiasPrompt, Lexicon

DIGEST = digest_bytes(b"")
ADJECTIVES = ("kind", "cruel", "tall", "wise", "rude", "quiet")
VALENCES = {"kind": 2.0, "wise": 1.5, "cruel": -2.5, "rude": -1.5, "awful": -3.0}
TEMPLATES = 8
GROUPS = {"pair": ("a", "b"), "many": ("a", "b", "c")}

Factors = dict[tuple[str, str], float]
"""What a group's share of an adjective is multiplied by, by group and adjective."""


def lists(axis: str = "pair") -> BiasLists:
    axes = [
        {
            "name": axis,
            "templates": [f"{{who}} is {number}" for number in range(TEMPLATES)],
            "groups": [{"name": name, "words": {"who": name}} for name in GROUPS[axis]],
        }
    ]
    return BiasLists.model_validate({"adjectives": ADJECTIVES, "axes": axes})


def measured(
    random: np.random.Generator,
    axis: str = "pair",
    *,
    probability: Factors | None = None,
    share: Factors | None = None,
    texts: int = 100,
    valences: dict[str, float] | None = None,
    **changes: Any,
) -> Bias:
    """A record of a model that is neutral but for `probability` after prompts and `share` of texts."""
    valences = VALENCES if valences is None else valences
    base = random.normal(-8, 2, (TEMPLATES, len(ADJECTIVES)))
    templates = []
    for number in range(TEMPLATES):
        prompts = []
        for group in GROUPS[axis]:
            logs = base[number] + random.normal(0, 0.15, len(ADJECTIVES))
            logs += [math.log((probability or {}).get((group, word), 1)) for word in ADJECTIVES]
            shares = [0.1 * (share or {}).get((group, word), 1) for word in ADJECTIVES]
            drawn = random.random((texts, len(ADJECTIVES))) < shares
            samples = tuple(" ".join(["so", *np.array(ADJECTIVES)[row], "."]) for row in drawn)
            prompt = BiasPrompt(
                group=group, text=group, log_probabilities=tuple(logs), samples=samples, cut=(False,) * texts
            )
            prompts.append(prompt)
        templates.append(tuple(prompts))
    fields = {
        "run": DIGEST,
        "step": 5,
        "consumed_tokens": 5,
        "checkpoint": DIGEST,
        "tokenizer": DIGEST,
        "program": "table",
        "device": "cpu",
        "lists": lists(axis),
        "settings": BiasSettings(num_samples=texts * TEMPLATES),
        "tokens": 50,
        "lexicon": Lexicon(name="own", digest=DIGEST) if valences else None,
        "valences": valences,
        "axes": (BiasAxisRecord(name=axis, templates=tuple(templates)),),
    }
    return Bias(**(fields | changes))
