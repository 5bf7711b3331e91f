"""v1: split count that fills whole waves."""
