"""Base version: one warpgroup loads, waits, multiplies, waits: no pipeline."""
