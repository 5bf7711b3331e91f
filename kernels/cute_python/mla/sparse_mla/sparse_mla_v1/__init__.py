"""v1: bytes arrive by asynchronous copies, and are converted within their tile."""
