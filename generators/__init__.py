"""Pages of the site, each family a module of pure functions from sources and records to text.

Nothing here runs a kernel or a compiler, and nothing below reads a page.
"""
