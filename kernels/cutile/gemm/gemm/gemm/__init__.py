"""The base version: one block per tile of the result."""
