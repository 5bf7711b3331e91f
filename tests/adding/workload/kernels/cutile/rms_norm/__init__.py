"""Normalization designs."""
