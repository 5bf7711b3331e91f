"""v20: parts of sequences cost less: places go back before a part leaves, merges in registers."""
