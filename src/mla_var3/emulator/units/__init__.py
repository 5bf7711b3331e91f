"""Asynchronous units of the emulated machine: copies and matrix products."""
