"""Base version: TokenSpeed-MLA's decode over a cache in pages of 64 tokens."""
