"""v1: causal loop split: whole key tiles without a mask, then masked ones."""
