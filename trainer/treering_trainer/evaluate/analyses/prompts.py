"""Continues the kept prompts with every checkpoint, and writes the continuations beside the scores."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from treering.collect.code import code_digest
from treering.config.canonical import digest_bytes, short
from treering.config.operation import PromptsConfig
from treering.data.corpus.text_tokenizer import load_tokenizer
from treering.data.corpus.token_bytes import Spelling
from treering.data.corpus.tokenizer import open_tokenizer
from treering.errors import EvidenceError, UserError
from treering.files import read_bytes
from treering.progress import Say
from treering.runlog.analyses import Continuation, Continuations
from treering.runlog.chronicle import finish_evaluations, write_analysis
from treering.runlog.directory import CheckpointDirectory, checkpoint_name
from treering_trainer import generate
from treering_trainer.checkpointing import checkpoint as checkpoint_files
from treering_trainer.checkpointing.inference import load_model
from treering_trainer.generate.decoder import Decoder
from treering_trainer.generate.samples import generate as continue_text
from treering_trainer.generate.sampling import Sampling

_JSON_LINES = ".jsonl"


@dataclass(frozen=True, slots=True)
class Prompts:
    """The kept prompts.

    Attributes:
        settings: how they are continued.
        texts: by id, in the order of the file.
        digest: of the file.
    """

    settings: PromptsConfig
    texts: dict[str, str]
    digest: str


def read_prompts(settings: PromptsConfig, root: Path) -> Prompts:
    """Reads the file of prompts: JSON Lines with `id` and `prompt` if its name ends so, else one prompt a line.

    Args:
        settings: name the file, from the project's root.
        root: the project's root.

    Raises:
        UserError: the file cannot be read, holds no prompt, or a line is wrong.
    """
    path = root / settings.file
    try:
        content = read_bytes(path)
        lines = content.decode().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"evaluation.prompts.file: {path}: {error}; expected a file of UTF-8 text") from error
    texts: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        name, text = _parse(line, f"{path} line {number}") if path.suffix == _JSON_LINES else (f"line {number}", line)
        if name in texts:
            raise UserError(f"{path} line {number}: id: found {name!r} twice, expected each id once")
        texts[name] = text.removesuffix("\r")
    if not texts:
        raise UserError(f"evaluation.prompts.file: {path}: no prompt, expected at least one line of text")
    return Prompts(settings, texts, digest_bytes(content))


def _parse(line: str, where: str) -> tuple[str, str]:
    """Id and text of a prompt.

    Raises:
        UserError: the line is no such object.
    """
    try:
        item = json.loads(line)
    except ValueError as error:
        raise UserError(f"{where}: not JSON ({error}), expected one object a line with id and prompt") from error
    if not isinstance(item, dict) or not all(isinstance(item.get(name), str) for name in ("id", "prompt")):
        raise UserError(f"{where}: found {line:.80}, expected an object with the texts id and prompt")
    return item["id"], item["prompt"]


def continue_checkpoints(
    checkpoints: Sequence[CheckpointDirectory],
    prompts: Prompts,
    records: Path,
    *,
    tokenizer: Path,
    end_of_document: int,
    say: Say,
    device: str,
) -> None:
    """Continues the prompts with each checkpoint; skips checkpoints whose continuations are kept already.

    Args:
        checkpoints: of one run, by step.
        prompts: the prompts.
        records: the run's `evaluations/`.
        tokenizer: file of the run's tokenizer.
        end_of_document: the token that ends every document.
        say: where progress goes.
        device: `cpu` or `cuda`.

    Raises:
        EvidenceError: a checkpoint differs from its manifest.
        TrainingError: the model gives no finite numbers.
    """
    records.mkdir(parents=True, exist_ok=True)
    finish_evaluations(records, checkpoints[0].manifest.run)
    codec, spelling = load_tokenizer(tokenizer), Spelling.of(open_tokenizer(tokenizer))
    settings = prompts.settings
    sampling = Sampling(settings.temperature, None, settings.top_p)
    for checkpoint in checkpoints:
        manifest = checkpoint.manifest
        head = Continuations(
            run=manifest.run,
            step=manifest.step,
            consumed_tokens=manifest.consumed_tokens,
            checkpoint=checkpoint.digest,
            tokenizer=digest_bytes(read_bytes(tokenizer)),
            program=_program(),
            device=device,
            prompts=prompts.digest,
            settings=settings,
            continuations=(),
        )
        if _is_stored(records, head):
            say(f"  step {checkpoint.step}: already continued")
            continue
        checkpoint_files.verify(checkpoint)
        decoder = Decoder(load_model(checkpoint).to(device))
        found = []
        for number, (name, text) in enumerate(prompts.texts.items()):
            tokens = codec.encode(text).ids or [end_of_document]
            sample = continue_text(
                decoder,
                spelling,
                tokens,
                end_of_document=end_of_document,
                max_tokens=settings.max_tokens,
                sampling=sampling,
                seed=settings.seed + number,
            )
            found.append(
                Continuation(
                    id=name,
                    prompt=text,
                    text=sample.text,
                    tokens=sample.tokens,
                    finish=sample.finish,
                    seed=sample.seed,
                    left_out_tokens=max(0, len(tokens) - decoder.sequence_length),
                )
            )
        write_analysis(records, head.model_copy(update={"continuations": tuple(found)}))
        say(f"  step {checkpoint.step}: {len(found)} prompts continued")


def _program() -> str:
    folder = Path(generate.__file__).parent
    return f"torch {version('torch')}, treering generation {short(code_digest(folder, ('*.py',)))}"


def _is_stored(records: Path, head: Continuations) -> bool:
    try:
        record, _ = Continuations.read(records / head.analysis / f"{checkpoint_name(head.step)}.json")
    except EvidenceError:
        return False
    return record.model_copy(update={"continuations": (), "device": head.device}) == head
