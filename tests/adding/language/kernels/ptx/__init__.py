"""Kernels in PTX."""

LANGUAGE = "ptx"
