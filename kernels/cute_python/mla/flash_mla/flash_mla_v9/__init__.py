"""v9: an mbarrier per slab of Q: scores begin with the first slab."""
