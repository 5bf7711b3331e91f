"""v4: a kernel for each path, side by side on two streams."""
