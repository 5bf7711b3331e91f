"""v1: causal loop split."""
