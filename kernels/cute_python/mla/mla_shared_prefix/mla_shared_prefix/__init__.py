"""Base version: own tokens, prefix, combine, one launch after another."""
