"""Reads the description of a cached index: JSON of megatron-core, or lines of text of older programs."""

import json
from collections.abc import Mapping
from typing import Any

Parsed = dict[str, Any] | None
"""The content of a description: `datasets`, at least one, each by name; None for a description of another kind."""


def parse_json(text: str, kind: str) -> Parsed:
    """The description of megatron-core.

    Raises:
        ValueError: the text is not JSON, or describes no datasets.
    """
    content = json.loads(text)
    datasets = content.get("datasets", [content]) if isinstance(content, dict) else None
    if not isinstance(datasets, list) or not datasets or not all(isinstance(each, dict) for each in datasets):
        raise ValueError("it does not describe datasets")
    return {"datasets": datasets, "weights": content.get("weights")} if content.get("class", kind) == kind else None


def parse_lines(text: str, kind: str) -> Parsed:
    """A description of lines of text.

    Raises:
        ValueError: the text describes no datasets.
    """
    lines = text.splitlines()
    if not lines or lines[0] not in ("GPT Dataset", "Blendable dataset"):
        raise ValueError(f"found {text[:40]!r}")
    if lines[0] != kind:
        return None
    names = ("Data prefix", "Dataset name", "Number of samples", "Number of epochs", "Sequence length", "Random seed")
    found: list[dict[str, str]] = [{}] if kind == "GPT Dataset" else []
    for line in lines[1:]:
        if line == "GPT Dataset":
            found.append({})
        for name in (*names, "Split"):
            if found and line.startswith(f"{name} "):
                found[-1].setdefault(name, line[len(name) + 1 :])
    if not found:
        raise ValueError("it does not describe datasets")
    return {"datasets": found}


def prefix_of(content: Mapping[str, Any]) -> str:
    """The prefix that a description of a dataset names; megatron-core 0.4 has another key."""
    return str(content.get("Data prefix") or content.get("dataset_path") or content.get("path_prefix"))
