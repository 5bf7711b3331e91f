"""NVIDIA's CuTe DSL examples: fetched at a pinned commit, read, compiled, and annotated.

What this project keeps of an example are facts and words of its own; no line of one.
"""
