"""Base version: own tokens, prefix and combine, three kernels launched one after another."""
