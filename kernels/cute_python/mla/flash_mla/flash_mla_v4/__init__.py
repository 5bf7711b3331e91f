"""v4: persistent CTAs; pairs of row tiles share each key tile by TMA multicast."""
