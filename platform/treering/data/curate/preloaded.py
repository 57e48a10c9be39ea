"""What every worker process of curation would load again; imported once, by the process that they are forked from.

That compiles the machine code too, if it was not compiled before, once and not in each worker.
"""

from contextlib import suppress

from treering.data.curate import finalize, ingest
from treering.data.curate.heldout import TwinIndex
from treering.data.curate.language import language
from treering.data.curate.minhash import MinHasher
from treering.data.words import RunTable, shingle_set, word_hashes
from treering.errors import TreeringError

__all__ = ["finalize", "ingest"]

_WORDS = word_hashes("a b c")
_SHINGLES = shingle_set(_WORDS, 2)
MinHasher(1, 1).bands(_SHINGLES)
RunTable(_SHINGLES).find(_WORDS, 2)
TwinIndex([(0, _SHINGLES)]).twin(_SHINGLES, 1.0)
with suppress(TreeringError):  # whoever needs the model says what is wrong with it
    language("a b c")
