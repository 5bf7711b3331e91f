"""Base version: FlashAttention-3's dense attention in its own layout."""
