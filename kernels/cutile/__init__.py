"""Designs in the cuTile DSL."""

LANGUAGE = "cutile-dsl"
