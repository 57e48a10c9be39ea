"""Parts of a page: boxes, tables, curves, and the words in them."""
