"""PyTorch's scaled_dot_product_attention, whatever runs beneath it."""
