"""Committed files that are generated from records and runs; a test holds each to its sources."""
