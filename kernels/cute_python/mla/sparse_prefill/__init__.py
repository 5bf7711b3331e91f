"""Sparse prefill: each query token attends to its own list of rows in bfloat16."""
