"""Designs whose kernel is a library's: peers that our own kernels are compared with."""

LANGUAGE = "library"
