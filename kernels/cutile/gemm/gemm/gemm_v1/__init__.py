"""v1: persistent blocks, one per SM, take tiles in a swizzled order that shares L2."""
