"""Parts of the mkdocs build: adapter that hands it the pages, hooks, extensions and assets."""
