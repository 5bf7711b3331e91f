"""v4: pairs of blocks share each tile of B by multicast."""
