"""One module per page, or per group of pages that belong together."""
