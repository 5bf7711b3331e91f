"""The base version: one call, its own layout."""
