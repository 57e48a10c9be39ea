"""Sources: pinned raw files, and the documents that readers cut out of them."""
