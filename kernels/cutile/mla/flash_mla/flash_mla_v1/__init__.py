"""v1: head grouping: rows are heads times queries, which share each latent tile's load."""
