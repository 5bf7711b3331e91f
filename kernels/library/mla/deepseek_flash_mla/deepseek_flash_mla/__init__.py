"""Base version: FlashMLA's dense decode over a paged KV cache."""
