"""v2: the two warpgroups take turns at the tensor cores."""
