"""Base version: a launch over pieces of the keys, and one that merges them."""
