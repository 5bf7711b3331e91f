"""Base version: prefix, own tokens and combine, three kernels launched one after another."""
