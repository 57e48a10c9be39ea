"""Measures what bias is computed from: probabilities of adjectives after each prompt, and drawn texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from treering.data.corpus.text_tokenizer import load_tokenizer
from treering.data.corpus.token_bytes import Spelling
from treering.data.corpus.tokenizer import TextTokenizer, end_of_document, open_tokenizer
from treering.errors import UserError
from treering.metrics.bias import words_of
from treering.progress import Progress
from treering.runlog.analyses import Bias, BiasAxisRecord, BiasPrompt
from treering.runlog.directory import CheckpointDirectory
from treering_trainer.checkpointing.inference import LanguageModel, load_model
from treering_trainer.evaluate.scoring import Continuation, score_continuations, truncate
from treering_trainer.generate.decoder import Decoder
from treering_trainer.generate.samples import draw_texts
from treering_trainer.generate.sampling import Sampling


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A prompt before the model answers.

    Attributes:
        axis: name of the axis.
        template: its number in the axis.
        group: the group.
        text: the prompt.
        tokens: of the text.
        samples: how many texts are drawn.
    """

    axis: str
    template: int
    group: str
    text: str
    tokens: tuple[int, ...]
    samples: int


def measure(
    head: Bias, checkpoint: CheckpointDirectory, tokenizer: Path, valences: dict[str, float], progress: Progress
) -> Bias:
    """The measurement of a checkpoint.

    Args:
        head: the record without what is measured.
        checkpoint: the checkpoint.
        tokenizer: file of the run's tokenizer.
        valences: of the lexicon, by word.
        progress: is called with what is done.

    Raises:
        UserError: a prompt is longer than the sequence.
        EvidenceError: the checkpoint is incomplete or changed.
        TrainingError: the model gives numbers that are not finite.
    """
    codec = load_tokenizer(tokenizer)
    model = load_model(checkpoint).to(head.device)
    prompts = _prompts(head, codec)
    longest = max(len(prompt.tokens) for prompt in prompts)
    if longest > model.sequence_length:
        raise UserError(
            f"bias: a prompt of {longest} tokens, expected at most {model.sequence_length}, the sequence; shorten the "
            "templates in a file of lists (--lists)"
        )
    tokens = min(head.settings.max_tokens, model.sequence_length + 1 - longest)
    # All probabilities come first: the decoder replaces the model's attention.
    logs = []
    for number, prompt in enumerate(prompts, 1):
        logs.append(_log_probabilities(model, codec, prompt, head.lists.adjectives))
        progress("adjectives", number, len(prompts))
    decoder, end = Decoder(model), end_of_document(tokenizer)[1]
    spelling = Spelling.of(open_tokenizer(tokenizer))
    sampling = Sampling(head.settings.temperature, None, head.settings.top_p)
    answers = []
    for number, (prompt, log_probabilities) in enumerate(zip(prompts, logs, strict=True)):
        drawn = draw_texts(
            decoder,
            spelling,
            prompt.tokens,
            count=prompt.samples,
            end_of_document=end,
            max_tokens=tokens,
            sampling=sampling,
            seed=int(np.random.SeedSequence([head.settings.seed, number]).generate_state(1)[0]),
        )
        answers.append(
            BiasPrompt(
                group=prompt.group,
                text=prompt.text,
                log_probabilities=log_probabilities,
                samples=tuple(text for text, _ in drawn),
                cut=tuple(cut for _, cut in drawn),
            )
        )
        progress("texts", number + 1, len(prompts))
    seen = set(head.lists.adjectives).union(*(words_of(text) for each in answers for text in each.samples))
    known = {word: valences[word] for word in sorted(seen) if word in valences}
    return head.model_copy(update={"tokens": tokens, "valences": known, "axes": _axes(head, prompts, answers)})


def _prompts(head: Bias, codec: TextTokenizer) -> list[_Prompt]:
    """The prompts of all axes, by axis, template and group."""
    found = []
    for axis in head.lists.axes:
        each, rest = divmod(head.settings.num_samples, len(axis.templates))
        for number, template in enumerate(axis.templates):
            for group in axis.groups:
                text = axis.prompt(template, group)
                tokens = tuple(codec.encode(text).ids)
                found.append(_Prompt(axis.name, number, group.name, text, tokens, each + (number < rest)))
    return found


def _log_probabilities(
    model: LanguageModel, codec: TextTokenizer, prompt: _Prompt, adjectives: Sequence[str]
) -> tuple[float, ...]:
    """Log-probability of each adjective as the next word, nats: the sum over its tokens.

    Raises:
        UserError: an adjective is longer than the sequence.
    """
    wanted = []
    for adjective in adjectives:
        whole = codec.encode(f"{prompt.text} {adjective}").ids
        place = len(prompt.tokens)
        try:
            wanted.append(truncate(Continuation(tuple(whole[:place]), tuple(whole[place:])), model.sequence_length))
        except ValueError as error:
            raise UserError(f"bias: {adjective!r}: {error}; leave it out of the adjectives of --lists") from error
    found = dict(score_continuations(model, wanted))
    return tuple(found[number].log_likelihood for number in range(len(wanted)))


def _axes(head: Bias, prompts: Sequence[_Prompt], answers: Sequence[BiasPrompt]) -> tuple[BiasAxisRecord, ...]:
    return tuple(
        BiasAxisRecord(
            name=axis.name,
            templates=tuple(
                tuple(
                    answer
                    for prompt, answer in zip(prompts, answers, strict=True)
                    if (prompt.axis, prompt.template) == (axis.name, number)
                )
                for number in range(len(axis.templates))
            ),
        )
        for axis in head.lists.axes
    )
