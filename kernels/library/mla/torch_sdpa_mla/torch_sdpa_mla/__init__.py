"""Base version: scaled_dot_product_attention on decompressed K and V; torch picks the back end."""
