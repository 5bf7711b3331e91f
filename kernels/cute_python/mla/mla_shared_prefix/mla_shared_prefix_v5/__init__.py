"""v5: own tokens by flash_mla v12, whose maxima may lag."""
