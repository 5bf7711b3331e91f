"""v11: the merge through L2 goes 64 columns at a time, which producer warps relay."""
