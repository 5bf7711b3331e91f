"""v1: split-KV CTAs exchange partials through L2, and each finishes a share of the output."""
