"""Data model of the pages: runs, the site that holds them, problems and version comparisons."""
