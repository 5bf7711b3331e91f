"""v4: pairs of CTAs share each tile of B by TMA multicast, in clusters of two."""
