"""NVIDIA's CuTe DSL examples: fetches them at a pinned commit, reads, compiles, annotates them.

This project keeps facts about an example and words of its own, and no line of one.
"""
