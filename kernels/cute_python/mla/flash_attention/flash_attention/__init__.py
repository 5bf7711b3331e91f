"""Base version: the kernel of hopper_attention at widths 192 and 128."""
