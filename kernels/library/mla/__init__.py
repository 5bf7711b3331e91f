"""MLA designs."""
