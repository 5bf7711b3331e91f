"""Instruction units of the emulated machine: copies, matrix products and launch control."""
