"""Measures the bias of a checkpoint: `python -m treering_trainer.evaluate.analyses.bias`, run by `treering bias`.

Writes a record beside the scores and prints its path on standard output. A measurement with the same lists, lexicon and
settings is kept.
"""

import argparse
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from pydantic import ValidationError

from treering.collect.code import code_digest
from treering.config.bias import OWN_LISTS, BiasSettings, read_bias_lists
from treering.config.canonical import digest_bytes, short
from treering.data.corpus.tokenizer import check_tokenizer
from treering.ending import run_command
from treering.errors import EvidenceError, TrainingError, UserError
from treering.files import read_bytes
from treering.foreign import say
from treering.progress import progress_bars
from treering.project import Project
from treering.runlog.analyses import Bias
from treering.runlog.chronicle import finish_evaluations, write_analysis
from treering.runlog.directory import EVALUATIONS, CheckpointDirectory, RunDirectory, checkpoint_name
from treering.runlog.extract import carry_evaluations
from treering.runlog.find import named_checkpoint
from treering_trainer.evaluate.analyses.lexicon import read_lexicon

_ANY = "any"
"""The device of a head: a measurement counts, whichever device made it."""

_TRAINER = Path(__file__).parents[2]
_MEASURING = ("evaluate/scoring.py", "evaluate/analyses/measure_bias.py", "generate")


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line and measures.

    Returns:
        0; 2 usage, 3 checkpoint or tokenizer do not hold, 5 the model gives no numbers; 130 interrupted.
    """
    parser = argparse.ArgumentParser(prog="treering bias", description="Measure the bias of a checkpoint.")
    parser.add_argument("checkpoint", help="a checkpoint's folder, or that of a run, or a prefix of a run's id")
    parser.add_argument("--lists", type=Path, default=OWN_LISTS)
    parser.add_argument("--lexicon", type=Path, default=None)
    parser.add_argument("--tokenizer", type=Path, default=None)
    parser.add_argument("--num-samples", type=int, required=True)
    parser.add_argument("--max-tokens", type=int, required=True)
    parser.add_argument("--temperature", type=float, required=True)
    parser.add_argument("--top-p", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args(arguments)
    return run_command(
        lambda: _measure(Project(Path.cwd()), options),
        trouble="bias cannot be measured or written: {}",
        trouble_code=TrainingError.exit_code,
    )


def _measure(project: Project, options: argparse.Namespace) -> None:
    checkpoint = named_checkpoint(project.runs, options.checkpoint)
    run, tokenizer = checkpoint.run, options.tokenizer or project.tokenizer
    if checkpoint.path.parent != run.checkpoints_folder:
        raise UserError(f"{checkpoint.path}: was superseded, expected a checkpoint of the run's present path")
    check_tokenizer(tokenizer, checkpoint.manifest.tokenizer, run.id)
    # What is published is cut from its run, whose journal is the only one that goes on.
    records = project.run(run.id) / EVALUATIONS if run.is_cut else run.evaluations_folder
    lexicon, valences = read_lexicon(options.lexicon)

    manifest = checkpoint.manifest
    head = Bias(
        run=manifest.run,
        step=manifest.step,
        consumed_tokens=manifest.consumed_tokens,
        checkpoint=checkpoint.digest,
        tokenizer=digest_bytes(read_bytes(tokenizer)),
        program=f"torch {version('torch')}, treering bias {short(code_digest(_TRAINER, _MEASURING))}",
        device=_ANY,
        lists=read_bias_lists(options.lists),
        settings=_settings(options),
        tokens=1,
        lexicon=lexicon,
        valences={},
        axes=(),
    )
    file = records / head.analysis / f"{checkpoint_name(head.step)}.json"
    if _is_stored(file, head):
        say(f"step {head.step}: already measured")
    else:
        warnings.filterwarnings("ignore", module="megatron")  # about kernels that evaluation does not use
        from treering_trainer.launch.devices import find_hardware, set_accelerator  # noqa: PLC0415

        device = find_hardware().device
        set_accelerator(device)
        _write(checkpoint, head.model_copy(update={"device": device}), records, tokenizer, valences)
        published = RunDirectory(project.published)
        if published.config_file.exists() and published.id == run.id:
            carry_evaluations(RunDirectory(records.parent), published.path)
    say(str(file.resolve()), sys.stdout)


def _settings(options: argparse.Namespace) -> BiasSettings:
    """How texts are drawn.

    Raises:
        UserError: an option is out of its range.
    """
    try:
        return BiasSettings(**{name: getattr(options, name) for name in BiasSettings.model_fields})
    except ValidationError as error:
        first = error.errors()[0]
        option = str(first["loc"][0]).replace("_", "-")
        raise UserError(f"--{option}: found {first['input']}: {first['msg']}") from error


def _write(
    checkpoint: CheckpointDirectory, head: Bias, records: Path, tokenizer: Path, valences: dict[str, float]
) -> None:
    from treering_trainer.checkpointing.checkpoint import verify  # noqa: PLC0415
    from treering_trainer.evaluate.analyses.measure_bias import measure  # noqa: PLC0415

    verify(checkpoint)
    records.mkdir(parents=True, exist_ok=True)
    finish_evaluations(records, head.run)
    groups = sum(len(axis.groups) for axis in head.lists.axes)
    say(f"step {head.step}: {groups} groups, {head.settings.num_samples} texts each, on {head.device}")
    with progress_bars() as progress:
        write_analysis(records, measure(head, checkpoint, tokenizer, valences, progress))


def _is_stored(file: Path, head: Bias) -> bool:
    try:
        record, _ = Bias.read(file)
    except EvidenceError:
        return False
    return record.model_copy(update={"device": _ANY, "tokens": 1, "valences": {}, "axes": ()}) == head


if __name__ == "__main__":
    sys.exit(main())
