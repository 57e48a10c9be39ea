"""What DVC recorded about the stages before training: the pipeline's part of a checkpoint's provenance."""

from pathlib import Path
from typing import Any, Final

import yaml

from treering.config.canonical import digest_json
from treering.config.yaml_text import parse_yaml
from treering.errors import EvidenceError
from treering.files import read_text

UPSTREAM_STAGES: Final = ("fetch", "curate", "tokenize", "blend")


def upstream_digest(root: Path) -> str | None:
    """Digest of what `dvc.lock` records about the stages before training, None outside DVC.

    Args:
        root: the project's root.

    Raises:
        EvidenceError: there is a `dvc.lock`, and it cannot be read.
    """
    path = root / "dvc.lock"
    if not path.exists():
        return None
    try:
        stages: dict[str, Any] = (parse_yaml(read_text(path)) or {}).get("stages", {})
        above = {name: stages[name] for name in UPSTREAM_STAGES if name in stages}
    except (OSError, UnicodeDecodeError, yaml.YAMLError, AttributeError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise EvidenceError(
            f"{path}: not a lock file of DVC ({reason}), expected what `dvc repro` wrote; `git checkout dvc.lock`, "
            "or remove the file and run `dvc repro`",
            file=path,
            found=reason,
            expected="a lock file of DVC",
            remedy="`git checkout dvc.lock`",
        ) from error
    return digest_json(above) if above else None
