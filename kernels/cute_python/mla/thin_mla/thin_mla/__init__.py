"""v0: keys on the rows of the tensor core, queries on its columns."""
