"""A checkpoint's state in DeepSpeed's universal form: whole tensors, one a parameter, which any layout can load.

What an attempt in another layout loads comes from here, so it decides numbers; `checkpointing.relayout` gives the files
their manifest and their name.
"""

from argparse import Namespace
from pathlib import Path

from deepspeed.checkpoint import ds_to_universal

from treering_trainer.core.engine import STATE_TAG
from treering_trainer.core.unpickling import only_state


def write_universal(checkpoint: Path, target: Path, num_workers: int) -> None:
    """Joins the parts of a checkpoint of one layout.

    Args:
        checkpoint: its folder.
        target: where the folder of the joined state is written.
        num_workers: processes that do it, forked from this one.

    Raises:
        EvidenceError: a file holds more than training state.
        AssertionError: how DeepSpeed says that the parts do not fit together.
        OSError: the state could not be read or written.
        RuntimeError: how torch's writer of archives says the same.
    """
    arguments = Namespace(
        input_folder=str(checkpoint / STATE_TAG),
        output_folder=str(target / STATE_TAG),
        num_extract_workers=num_workers,
        num_merge_workers=num_workers,
        keep_temp_folder=False,
        strict=True,
        inject_missing_state=False,
    )
    with only_state(checkpoint):  # forked workers inherit it
        ds_to_universal.main(arguments)
