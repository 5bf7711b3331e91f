"""v1: blocks shared out in proportion to cost."""
