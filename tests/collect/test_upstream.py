"""What DVC recorded above training, as one digest."""

import pytest
import yaml

from treering.collect.upstream import upstream_digest
from treering.config.canonical import digest_json
from treering.errors import EvidenceError

STAGES = {"fetch": {"cmd": "f"}, "blend": {"cmd": "b", "outs": [{"path": "data/blend.json", "md5": "1"}]}}


def test_only_the_stages_above_training_count(tmp_path):
    (tmp_path / "dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": {**STAGES, "train": {"cmd": "t"}}}))
    assert upstream_digest(tmp_path) == digest_json(STAGES)


def test_outside_dvc_there_is_none(tmp_path):
    assert upstream_digest(tmp_path) is None
    (tmp_path / "dvc.lock").write_text("")
    assert upstream_digest(tmp_path) is None


@pytest.mark.parametrize("text", ["stages: [", "- a list", "stages: 3", "\xff"])
def test_a_broken_lock_file_is_named(tmp_path, text):
    (tmp_path / "dvc.lock").write_bytes(text.encode("latin-1"))
    with pytest.raises(EvidenceError, match=r"dvc\.lock: not a lock file of DVC .*git checkout dvc\.lock"):
        upstream_digest(tmp_path)
