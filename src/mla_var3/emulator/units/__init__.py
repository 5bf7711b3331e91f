"""Units that work beside the threads: copies and matrix products."""
