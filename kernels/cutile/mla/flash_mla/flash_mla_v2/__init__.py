"""v2: worker warps and tile sizes chosen so that accumulator and scores fit registers."""
