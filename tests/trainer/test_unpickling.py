"""A resumed run takes training state from its checkpoint, and no code."""

from pathlib import Path

import pytest
import torch
from deepspeed.runtime.checkpoint_engine.torch_checkpoint_engine import TorchCheckpointEngine
from deepspeed.runtime.fp16.loss_scaler import LossScaler
from deepspeed.runtime.zero.config import ZeroStageEnum
from deepspeed.utils.tensor_fragment import fragment_address

from treering.errors import EvidenceError
from treering.runlog.directory import RunDirectory
from treering_trainer.checkpointing.checkpoint import seal
from treering_trainer.checkpointing.relayout import convert
from treering_trainer.core.unpickling import only_state

pytestmark = pytest.mark.trainer


class Code:
    """Touches a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_state_is_read_code_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "0")
    torch.save({"scaler": LossScaler(2.0), "weight": torch.ones(2)}, tmp_path / "state.pt")
    torch.save({"weight": torch.ones(2), "code": Code(tmp_path / "ran")}, tmp_path / "code.pt")

    def load(name):
        return TorchCheckpointEngine().load(str(tmp_path / name))

    with only_state(tmp_path):
        assert load("state.pt")["scaler"].cur_scale == 2.0
    refused = r"holds more than training state, of which nothing was run \(Unsupported global: .* by default\)"
    with pytest.raises(EvidenceError, match=refused), only_state(tmp_path):
        load("code.pt")
    assert not (tmp_path / "ran").exists()
    # DeepSpeed alone does what the file says.
    load("code.pt")
    assert (tmp_path / "ran").exists()


@pytest.mark.slow
def test_a_forged_checkpoint_runs_nothing(zygote, project, tmp_path):
    runs = tmp_path / "runs"
    zygote.train(project, runs, "--set=parallel.data=1", expect=-9, kill_after_ring={"step": 6})
    (path,) = runs.glob("*/resolved.json")
    checkpoint = RunDirectory(path.parent).checkpoints()[-1]
    (victim,) = (checkpoint.path / "state").glob("zero_pp_rank_0_*.pt")
    torch.save({"optimizer_state_dict": Code(tmp_path / "ran")}, victim)
    manifest = checkpoint.manifest
    checkpoint.manifest_file.unlink()
    # Whoever forges a file forges its digest too.
    seal(checkpoint.path, checkpoint.path, lambda files: manifest.model_copy(update={"files": files}))
    said = f"{checkpoint.path.name}: holds more than training state"
    assert said in zygote.train(project, runs, "--set=parallel.data=1", expect=3)
    with pytest.raises(EvidenceError, match=said):
        convert(RunDirectory(path.parent).checkpoints()[-1])
    assert list((path.parent / "universal").glob("*step*")) == []
    assert not (tmp_path / "ran").exists()


class WrittenAsAttribute:
    """What the pickle of an old Python asks for: an attribute of something, by name."""

    def __init__(self, of, name):
        self.asked_for = (of, name)

    def __reduce__(self):
        return getattr, self.asked_for


def test_members_of_enumerations_as_older_pythons_write_them(tmp_path):
    """Python before 3.11.4 writes `getattr(ZeroStageEnum, "optimizer_states")`."""
    path = tmp_path / "state.pt"
    torch.save({"zero_stage": WrittenAsAttribute(ZeroStageEnum, "optimizer_states")}, path)
    with only_state(tmp_path):
        assert TorchCheckpointEngine().load(str(path)) == {"zero_stage": ZeroStageEnum.optimizer_states}


@pytest.mark.parametrize(
    ("of", "name"), [(ZeroStageEnum, "mro"), (ZeroStageEnum, "__members__"), (fragment_address, "__init__")]
)
def test_other_attributes_are_refused(of, name, tmp_path):
    path = tmp_path / "state.pt"
    torch.save({"zero_stage": WrittenAsAttribute(of, name)}, path)
    said = f"holds more than training state.*attribute '{name}' of"
    with pytest.raises(EvidenceError, match=said), only_state(tmp_path):
        TorchCheckpointEngine().load(str(path))
