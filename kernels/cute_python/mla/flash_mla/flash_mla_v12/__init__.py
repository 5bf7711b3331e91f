"""v12: split-KV partial results are stored 64 columns at a time, as v11's outputs are."""
