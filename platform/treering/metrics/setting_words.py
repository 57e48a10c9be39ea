"""What a setting is, for a reader who does not know its path: `recipe.optimizer.peak_learning_rate`."""

from typing import Final

from treering.config.load import sections_in
from treering.config.model import Section
from treering.config.resolved import Resolved

_WORDS: Final = {
    "recipe.seed": "seed of the initial weights and of dropout",
    "recipe.blend": "blend: the corpora, their shares and their order, by digest",
    "recipe.tokenizer": "tokenizer, by digest",
    "recipe.optimizer.peak_learning_rate": "highest learning rate",
    "recipe.optimizer.min_learning_rate": "learning rate at the end of the decay",
    "recipe.model.num_layers": "number of layers",
    "recipe.precision": "precision of the numbers that are computed with",
    "blend.seed": "seed of the data order",
    "ran.code": "code that decides numbers, by digest",
    "ran.code_rule": "rule by which the code was digested",
    "ran.environment": "packages, devices and variables that can move numbers, by digest; the table below names them",
}
_PARTS: Final = {
    "ran.layout": "how the ranks shared the work",
    "ran.kernels": "kernel that ran",
}
_COMPONENT: Final = "blend.components."


def setting_words(path: str) -> str:
    """What a setting is, in words.

    Args:
        path: dotted path, as `metrics.compare.differences` gives it.

    Returns:
        Empty for a setting of another trainer.
    """
    if path in _WORDS:
        return _WORDS[path]
    if path.startswith(_COMPONENT) and path.count(".") == 3:
        _, _, corpus, field = path.split(".")
        return {"weight": f"share of corpus {corpus} in the samples", "digest": f"content of corpus {corpus}"}.get(
            field, f"{field.replace('_', ' ')} of corpus {corpus}"
        )
    found = _description(Resolved, path.split("."))
    if found:
        return found
    return next((words for part, words in _PARTS.items() if path.startswith(f"{part}.")), "")


def _description(section: type[Section], parts: list[str]) -> str:
    """The description of a field, with its name in words; empty where there is no such field."""
    name, *rest = parts
    field = section.model_fields.get(name)
    if field is None:
        return ""
    if rest:
        return next((words for each in sections_in(field.annotation) if (words := _description(each, rest))), "")
    plain = name.replace("_", " ")
    return f"{plain}: {field.description}" if field.description else plain
