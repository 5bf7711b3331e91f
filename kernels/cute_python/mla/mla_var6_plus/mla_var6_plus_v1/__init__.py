"""v1: plan whose stages fill the GPU; n newest tokens (0 or t) by measured efficiency."""
