"""Base version: its decode entry point, cache in pages of 64."""
