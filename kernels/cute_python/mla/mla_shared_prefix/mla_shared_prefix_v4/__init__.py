"""v4: the blocks of the prefix add the own tokens themselves."""
