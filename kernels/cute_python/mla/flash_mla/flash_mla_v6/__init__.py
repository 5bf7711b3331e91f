"""v6: the split-KV merge starts while attention ends, by programmatic dependent launch."""
