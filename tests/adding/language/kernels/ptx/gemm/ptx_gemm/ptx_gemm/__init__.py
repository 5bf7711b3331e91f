"""v0: a thread per element."""
