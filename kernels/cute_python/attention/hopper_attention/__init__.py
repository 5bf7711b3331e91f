"""Attention for Hopper, from a plain pipeline to persistent blocks and shared-out keys."""
