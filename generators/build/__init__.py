"""What mkdocs runs: the script that hands it the pages, its hooks, extensions and assets."""
