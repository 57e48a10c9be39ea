"""One module a page; a page imports no other page."""
