"""A checkpoint as a model of lm-eval: log-likelihoods of continuations and of whole texts, and generated texts."""

from collections.abc import Callable
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.defaults import DEFAULT_MAX_GEN_TOKS
from lm_eval.models.utils import normalize_gen_kwargs, postprocess_generated_text
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from treering.data.corpus.token_bytes import Spelling
from treering.data.corpus.tokenizer import TextTokenizer
from treering.errors import UserError
from treering_trainer.checkpointing.inference import LanguageModel
from treering_trainer.evaluate.scoring import Continuation, Score, score_continuations, truncate
from treering_trainer.generate.decoder import Decoder
from treering_trainer.generate.samples import generate
from treering_trainer.generate.sampling import Sampling


class CheckpointLM(TemplateLM):
    """A loaded checkpoint as lm-eval sees it; contexts longer than the sequence are cut on the left.

    Args:
        model: the loaded model.
        tokenizer: the tokenizer of the run's corpora.
        end_of_document: token before a text without context.
        spelling: gives the spelling of the tokenizer's tokens, for tasks that generate text.
    """

    def __init__(
        self, model: LanguageModel, tokenizer: TextTokenizer, end_of_document: int, spelling: Callable[[], Spelling]
    ) -> None:
        super().__init__()
        self.model = model
        self.codec = tokenizer
        self.truncated = 0
        self._spelling = spelling
        self._end_of_document = end_of_document
        self._known: dict[Continuation, Score] = {}

    @property
    def eot_token_id(self) -> int:
        """End of document, the context of a text without context."""
        return self._end_of_document

    @property
    def max_length(self) -> int:
        """Tokens of a sequence."""
        return self.model.sequence_length

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:  # noqa: ARG002 - lm-eval's signature
        """Token ids of a text."""
        return list(self.codec.encode(string).ids)

    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **_: Any
    ) -> list[tuple[float, bool]]:
        """Log-likelihood of each request, and whether each of its tokens was the most probable one.

        Raises:
            UserError: a continuation is longer than a sequence.
        """
        wanted = [Continuation(tuple(context), tuple(tokens)) for _, context, tokens in requests]
        fitting = []
        for continuation, (texts, _context, _tokens) in zip(wanted, requests, strict=True):
            try:
                fitting.append(truncate(continuation, self.max_length))
            except ValueError as error:
                raise UserError(f"evaluation: {texts[1][:60]!r}…: {error}; shorten the task's continuations") from error
        # The choices of an item share their context, so the item counts once.
        self.truncated += len({full.context for full, cut in zip(wanted, fitting, strict=True) if full != cut})
        # If no further example fits, prompts with more shots are equal to those with fewer, and are scored once.
        unknown = [continuation for continuation in dict.fromkeys(fitting) if continuation not in self._known]
        for number, score in score_continuations(self.model, unknown):
            self._known[unknown[number]] = score
        return [(self._known[each].log_likelihood, self._known[each].greedy) for each in fitting]

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        """Scores continuations of contexts, without a progress bar."""
        return super().loglikelihood(requests, disable_tqdm=disable_tqdm)

    def forget(self) -> None:
        """Drops the scores that are kept for repeated prompts."""
        self._known.clear()

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = True) -> list[float]:  # noqa: ARG002 - lm-eval's signature
        """Log-likelihood of each text, nats: its first token follows the end of a document.

        A text longer than a sequence is read in windows that share one token, each token scored once, as lm-eval's
        own models do.
        """
        windows: list[tuple[tuple[str, str], list[int], list[int]]] = []
        owners: list[int] = []
        for number, request in enumerate(requests):
            (text,) = request.args
            for window in get_rolling_token_windows(self.tok_encode(text), self.prefix_token_id, self.max_length, 1):
                windows.append((("", text), *make_disjoint_window(window)))
                owners.append(number)
        sums = [0.0] * len(requests)
        for owner, (log_likelihood, _greedy) in zip(owners, self._loglikelihood_tokens(windows), strict=True):
            sums[owner] += log_likelihood
        return sums

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = True) -> list[str]:  # noqa: ARG002 - lm-eval's signature
        """Continues each context until a stop text, the end of a document, or the task's number of tokens.

        Raises:
            UserError: the task asks for more tokens than a sequence holds.
        """
        texts = []
        spelling = self._spelling()
        with Decoder(self.model) as decoder:
            for number, request in enumerate(requests):
                context, options = request.args
                options, room = self._generation(options)
                tokens = self.tok_encode(context) or [self.prefix_token_id]
                self.truncated += len(tokens) > room
                sample = generate(
                    decoder,
                    spelling,
                    tokens[-room:],
                    end_of_document=self.eot_token_id,
                    max_tokens=options["max_gen_toks"],
                    sampling=_sampling(options),
                    seed=number,
                    stops=options["until"],
                )
                drawn = [token for token in sample.tokens if token != self.eot_token_id]
                texts.append(postprocess_generated_text(self.codec.decode(drawn), options["until"], None))
        return texts

    def _generation(self, options: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """The task's options with defaults, and the tokens of the context that leave room for the generated ones.

        Raises:
            UserError: there is no such room.
        """
        found = dict(normalize_gen_kwargs(options, DEFAULT_MAX_GEN_TOKS))
        room = self.max_length - found["max_gen_toks"]
        if room < 1:
            raise UserError(
                f"evaluation.tasks: the task generates {found['max_gen_toks']} tokens, expected less than the "
                f"{self.max_length} of a sequence; leave it out, or train with longer sequences"
            )
        return {**found, "until": [stop for stop in found["until"] if stop]}, room

    def reads(self, request: Instance, start: int) -> bool:
        """Whether the model reads a request's text, its context and its continuation, from a place on."""
        context, rest = request.args
        if isinstance(rest, str):
            return len(self.tok_encode((context + rest)[start:])) <= self.max_length + 1
        return len(self.tok_encode(context[start:])) <= self._generation(rest)[1]


def _sampling(options: dict[str, Any]) -> Sampling:
    """How the task draws a token; without `do_sample` the most probable one."""
    if not options["do_sample"]:
        return Sampling(temperature=0)
    return Sampling(float(options.get("temperature", 1.0)), options.get("top_k"), float(options.get("top_p", 1.0)))
