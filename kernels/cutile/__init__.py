"""Kernels in the cuTile Python DSL (language key ``cutile-dsl``)."""
