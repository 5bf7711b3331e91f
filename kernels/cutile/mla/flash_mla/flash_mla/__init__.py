"""Base version: one head a block."""
