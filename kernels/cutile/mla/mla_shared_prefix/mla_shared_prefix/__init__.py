"""Base version: prefix, own tokens, combine, one launch after another."""
