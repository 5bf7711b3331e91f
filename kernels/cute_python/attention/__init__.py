"""Attention designs."""
