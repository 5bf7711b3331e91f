"""v2: hints chosen by static resources."""
