"""Generators of the site: modules of functions that make its pages from sources and records.

Nothing here runs a kernel or a compiler, and nothing below reads a page.
"""
