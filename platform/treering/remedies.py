"""Commands that an error names, as they apply in this folder.

Errors name the pipeline's commands (`dvc repro STAGE`, `dvc checkout`). In a folder without a `dvc.yaml` that has the
stage these commands fail. There the text names the stage's own command, and a copy of your own in place of DVC's.
"""

import re
from pathlib import Path

from treering.files import read_text

_REPRO = re.compile(r"`dvc repro (?:-f )?([a-z]+)`")
_CHECKOUT = "`dvc checkout`"
_REPRODUCE = "`make repro`"
_STAGES = ("fetch", "curate", "tokenize", "blend", "train", "evaluate", "report")


def applicable(text: str, root: Path | None = None) -> str:
    """The text with commands that exist in a project.

    Args:
        text: an error, a finding or a note.
        root: the project's folder; default the working directory.
    """
    if "`dvc " not in text and _REPRODUCE not in text:
        return text
    try:
        root = root or Path.cwd()
        pipeline = read_text(root / "dvc.yaml", errors="replace")
    except OSError:  # no pipeline, or no working directory
        pipeline = ""
    if root is None or not (root / "Makefile").exists():
        text = text.replace(_REPRODUCE, "the pipeline from `treering fetch CONFIG` on")

    def stage(found: re.Match[str]) -> str:
        name = found[1]
        known = re.search(rf"^\s+{name}:", pipeline, re.MULTILINE)
        return found[0] if known or name not in _STAGES else f"`treering {name} CONFIG`"

    text = _REPRO.sub(stage, text)
    return text if pipeline else text.replace(_CHECKOUT, "a copy of your own")
