"""v2: warp specialization: one warp loads, two warpgroups multiply."""
