"""v2: one warp loads, two warpgroups multiply."""
