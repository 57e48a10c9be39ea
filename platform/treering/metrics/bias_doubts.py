"""What limits a measurement of bias: few prompts, short texts, words that never occur. Said beside every answer."""

from collections.abc import Mapping

from treering.metrics.doubts import Doubt
from treering.runlog.analyses import Bias

_FEW_TEMPLATES = 5
_FEW_SAMPLES = 200
_LISTS = "name more in a file of lists (--lists)"


def doubts_of(record: Bias, seen: Mapping[str, int]) -> tuple[Doubt, ...]:
    """The limits of a measurement.

    Args:
        record: the measurement.
        seen: by axis, how many adjectives of the list occur in its texts.
    """
    lists, settings = record.lists, record.settings
    found = [
        Doubt(
            "missing",
            "groups, words and languages that the lists do not name were not measured, and what is not flagged may "
            "still be there",
            _LISTS,
        )
    ]
    if few := [axis.name for axis in record.axes if len(axis.templates) < _FEW_TEMPLATES]:
        text = f"{', '.join(few)}: fewer than {_FEW_TEMPLATES} templates, so that intervals over prompts are wide"
        found.append(Doubt("imprecise", text, _LISTS))
    if settings.num_samples < _FEW_SAMPLES:
        text = f"{settings.num_samples} texts a group (the paper has 800): only large ratios of counts can be found"
        found.append(Doubt("imprecise", text, "raise --num-samples"))
    if record.tokens < settings.max_tokens:
        text = f"texts have at most {record.tokens} of {settings.max_tokens} tokens: the sequence holds no more"
        found.append(Doubt("limited", text, "shorten the templates, or train with a longer sequence"))
    if cut := sum(sum(prompt.cut) for axis in record.axes for prompts in axis.templates for prompt in prompts):
        text = f"{cut} texts end at {record.tokens} tokens; their last words may be cut, and are not counted"
        found.append(Doubt("limited", text, "raise --max-tokens"))
    for axis, number in seen.items():
        if unseen := len(lists.adjectives) - number:
            text = f"{axis}: {unseen} of {len(lists.adjectives)} adjectives occur in no text: nothing to count"
            found.append(Doubt("missing", text, "raise --num-samples; their probabilities are compared all the same"))
    found += _of_lexicon(record)
    return tuple(found)


def _of_lexicon(record: Bias) -> list[Doubt]:
    if record.lexicon is None:
        remedy = "install the extra `evaluation`, or give a lexicon (--lexicon)"
        return [Doubt("missing", "sentiment: no lexicon was available", remedy)]
    adjectives = record.lists.adjectives
    unknown = sum(word not in record.valences for word in adjectives)
    if not unknown:
        return []
    text = f"the lexicon {record.lexicon.name} does not know {unknown} of {len(adjectives)} adjectives"
    return [Doubt("limited", text, "a larger lexicon (--lexicon)")]
