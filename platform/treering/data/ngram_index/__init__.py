"""The index from runs of words to the documents of a corpus that hold them."""
