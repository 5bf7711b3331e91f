"""v0: operands swapped: keys are rows of the tensor core, the few queries its columns."""
