"""Writes a checkpoint's state in DeepSpeed's universal form: one whole tensor a parameter, which any layout can load.

It decides the numbers that an attempt in another layout starts from; `checkpointing.relayout` adds the manifest.
"""

from argparse import Namespace
from pathlib import Path

from deepspeed.checkpoint import ds_to_universal

from treering_trainer.core.engine import STATE_TAG
from treering_trainer.core.unpickling import only_state


def write_universal(checkpoint: Path, target: Path, num_workers: int) -> None:
    """Joins the parts of a checkpoint of one layout.

    Args:
        checkpoint: the checkpoint's folder.
        target: the folder to write the joined state into.
        num_workers: processes to fork for it.

    Raises:
        EvidenceError: a file holds more than training state.
        AssertionError: DeepSpeed found that the parts do not fit together.
        OSError: the state could not be read or written.
        RuntimeError: torch could not read or write the state.
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
