"""v2: heavy tiles first and fast-math softmax."""
