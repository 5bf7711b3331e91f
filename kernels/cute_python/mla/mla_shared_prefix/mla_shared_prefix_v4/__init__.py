"""v4: the prefix's blocks add the own tokens, without a combine."""
