"""A corpus of texts that a test has, as stage `tokenize` writes those that were curated."""

from treering.data.corpus.encode import encoder, tokenized
from treering.data.corpus.write import write_tokens


def write_corpus(directory, documents, tokenizer, end_of_document, about, *, width=2):
    """Writes a corpus of rows with id, text, source, offset and licence, and returns its manifest."""
    return write_tokens(directory, tokenized(documents, encoder(tokenizer), end_of_document), about, width=width)
