"""v1: a split count that fills whole waves of SMs; one split needs no reduce."""
