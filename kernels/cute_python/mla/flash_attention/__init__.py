"""Per-head attention over decompressed keys and values on Hopper, for decode and prefill."""
