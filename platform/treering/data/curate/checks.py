"""The last checks of training documents, shard by shard: none is like a held-out one, none holds a task's n-gram."""

from dataclasses import dataclass

from treering.data.curate.decontaminate import TaskNgrams
from treering.data.curate.heldout import TwinIndex
from treering.data.curate.library import Training
from treering.data.words import Hashes, shingle_set, word_hashes

Drop = tuple[str, str, str | None]
"""Step and rule that drop a document, and the document that it is too similar to, if that is the reason."""


@dataclass(frozen=True, slots=True)
class Checks:
    """The last checks of every training document.

    Attributes:
        twins: the held-out documents of all corpora.
        twin_names: their names, as `twins` numbers them.
        ngrams: of all tasks.
        shingle_words: words in a shingle.
        min_jaccard: a training document this similar to a held-out one is dropped.
    """

    twins: TwinIndex
    twin_names: list[str]
    ngrams: TaskNgrams
    shingle_words: int
    min_jaccard: float

    def drop(self, text: str) -> Drop | None:
        """Why a training document is dropped; None to keep it."""
        hashes = word_hashes(text)
        twin = self.twin(hashes)
        if twin is not None:
            return "heldout", "twin", twin
        task = self.ngrams.contaminated_by(hashes)
        return None if task is None else ("decontaminate", task, None)

    def twin(self, hashes: Hashes) -> str | None:
        """The held-out document that a text of these word hashes is too similar to; None without one."""
        twin = self.twins.twin(shingle_set(hashes, self.shingle_words), self.min_jaccard)
        return None if twin is None else self.twin_names[twin]


def check_shard(checks: Checks, training: Training) -> dict[int, Drop]:
    """Which training documents of a shard are dropped, by their place in the shard."""
    drops = {place: checks.drop(text) for place, text in training.texts()}
    return {place: drop for place, drop in drops.items() if drop is not None}
