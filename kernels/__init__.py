"""Kernel designs by language, layer and design; each version is a module of its own."""
