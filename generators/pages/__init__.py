"""Families of pages that every workload has, each a module with ``places`` and ``pages``."""
