"""v1: blocks of the launch are divided in proportion to each path's cost."""
