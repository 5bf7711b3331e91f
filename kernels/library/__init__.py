"""Designs whose kernel is a library: the peers of our own."""

LANGUAGE = "library"
