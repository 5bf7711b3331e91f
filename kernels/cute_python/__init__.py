"""Designs in the CuTe DSL."""

LANGUAGE = "cute-dsl"
