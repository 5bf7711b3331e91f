"""PyTorch's scaled_dot_product_attention over the decompressed cache."""
