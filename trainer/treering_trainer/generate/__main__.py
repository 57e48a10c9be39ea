"""Generates text: `python -m treering_trainer.generate CHECKPOINT`, run by `treering generate`."""

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from treering.config.canonical import short
from treering.data.corpus.text_tokenizer import load_tokenizer
from treering.data.corpus.token_bytes import Spelling
from treering.data.corpus.tokenizer import check_tokenizer, end_of_document, open_tokenizer
from treering.ending import run_command
from treering.errors import TrainingError, UserError
from treering.files import read_bytes
from treering.foreign import say, shown
from treering.project import Project
from treering.runlog.find import named_checkpoint

_STDIN = "-"


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line and generates.

    Returns:
        0; 2 usage, 3 checkpoint or tokenizer do not hold, 5 the model gives no numbers; 130 interrupted.
    """
    parser = argparse.ArgumentParser(prog="treering generate", description="Continue a text with a checkpoint.")
    parser.add_argument("checkpoint", help="a checkpoint's folder, or that of a run, or a prefix of a run's id")
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", default="")
    prompt.add_argument("--prompt-file", default=None, help="`-` is standard input")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--top-k", type=int, default=None)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num-samples", type=int, default=1)
    parser.add_argument("--stop", action="append", default=[])
    parser.add_argument("--tokenizer", type=Path, default=None, help="default: the project's")
    parser.add_argument("--stream", action=argparse.BooleanOptionalAction, default=None)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    return run_command(
        lambda: _generate(Project(Path.cwd()), options),
        trouble="generation cannot read or write: {}",
        trouble_code=TrainingError.exit_code,
        interrupted="",
    )


def _generate(project: Project, options: argparse.Namespace) -> None:
    checkpoint = named_checkpoint(project.runs, options.checkpoint)
    tokenizer_path = options.tokenizer or project.tokenizer
    check_tokenizer(tokenizer_path, checkpoint.manifest.tokenizer, checkpoint.run.id)
    _, end = end_of_document(tokenizer_path)
    text = _prompt(options)
    # A document begins after the end of another.
    prompt = load_tokenizer(tokenizer_path).encode(text).ids or [end]
    _check(options)

    warnings.filterwarnings("ignore", module="megatron")  # about kernels that generation does not use
    # Slow imports (torch, megatron-core), so that a wrong argument is reported at once.
    from treering_trainer.generate.sampling import Sampling  # noqa: PLC0415
    from treering_trainer.launch.devices import find_hardware, set_accelerator  # noqa: PLC0415

    sampling = Sampling(options.temperature, options.top_k, options.top_p)
    device = find_hardware().device
    set_accelerator(device)
    from treering_trainer.checkpointing.checkpoint import verify  # noqa: PLC0415
    from treering_trainer.checkpointing.inference import load_model  # noqa: PLC0415
    from treering_trainer.generate.decoder import Decoder  # noqa: PLC0415
    from treering_trainer.generate.samples import generate  # noqa: PLC0415

    verify(checkpoint)
    spelling = Spelling.of(open_tokenizer(tokenizer_path))
    decoder = Decoder(load_model(checkpoint).to(device))
    _note(
        f"run {checkpoint.run.id}, step {checkpoint.step}, checkpoint {short(checkpoint.digest)}, on {device}, "
        f"seed {options.seed}"
    )
    _note_left_out(len(prompt), options.max_tokens, decoder.sequence_length)
    stream = options.stream if options.stream is not None else sys.stdout.isatty() and not options.json
    samples = []
    for seed in range(options.seed, options.seed + options.num_samples):
        if options.num_samples > 1 and not options.json:
            _print(f"--- seed {seed}\n")
        sample = generate(
            decoder,
            spelling,
            prompt,
            end_of_document=end,
            max_tokens=options.max_tokens,
            sampling=sampling,
            seed=seed,
            stops=options.stop,
            show=_print if stream else lambda _text: None,
        )
        if not options.json:
            _print(f"{'' if stream else sample.text}\n")
        samples.append(asdict(sample))
    if options.json:
        document: dict[str, Any] = {
            "run": checkpoint.manifest.run,
            "step": checkpoint.step,
            "checkpoint": checkpoint.digest,
            "device": device,
            "prompt": text,
            "prompt_tokens": prompt,
            "left_out_tokens": max(0, len(prompt) - decoder.sequence_length),
            "sampling": {**asdict(sampling), "max_tokens": options.max_tokens, "stop": options.stop},
            "samples": samples,
        }
        sys.stdout.write(json.dumps(document, indent=2) + "\n")


def _check(options: argparse.Namespace) -> None:
    """Checks options that argparse cannot check.

    Raises:
        UserError: an option is out of its range, or has no effect.
    """
    for name in ("max_tokens", "num_samples"):
        if getattr(options, name) < 1:
            raise UserError(f"--{name.replace('_', '-')}: found {getattr(options, name)}, expected a number from 1 on")
    if options.seed < 0:
        raise UserError(f"--seed: found {options.seed}, expected a number from 0 on")
    if "" in options.stop:
        raise UserError("--stop: found an empty text, expected at least one character")
    if options.json and options.stream:
        raise UserError("--stream: has no effect with --json, which prints one document at the end")


def _prompt(options: argparse.Namespace) -> str:
    """The prompt, from its option, its file or standard input.

    Raises:
        UserError: the file cannot be read, or is not UTF-8 text.
    """
    if options.prompt_file is None:
        return str(options.prompt)
    try:
        content = sys.stdin.buffer.read() if options.prompt_file == _STDIN else read_bytes(Path(options.prompt_file))
        return content.decode()
    except OSError as error:
        raise UserError(f"--prompt-file: {error}; expected a readable file, or `-` for standard input") from error
    except UnicodeDecodeError as error:
        raise UserError(f"--prompt-file: {options.prompt_file} is not UTF-8 text ({error})") from error


def _note_left_out(prompt_tokens: int, max_tokens: int, sequence_length: int) -> None:
    """Prints which tokens the model will not read, if any."""
    left_out = prompt_tokens - sequence_length
    if left_out > 0:
        cut = f"the prompt's first {left_out} of {prompt_tokens} tokens are left out"
        _note(f"{cut}: the model reads {sequence_length}")
    elif left_out + max_tokens > 0:
        _note(f"the model reads {sequence_length} tokens: from then on the first tokens are left out")


def _note(text: str) -> None:
    say(f"treering: {text}")


def _print(text: str) -> None:
    sys.stdout.write(shown(text, lines=True) if sys.stdout.isatty() else text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
