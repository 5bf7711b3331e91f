"""v6: the merge starts while attention ends."""
