"""v1: a warpgroup's softmax runs under its own wgmma products."""
