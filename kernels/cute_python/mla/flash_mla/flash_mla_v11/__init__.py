"""v11: what meets in L2 arrives in pieces, which producer warps relay."""
