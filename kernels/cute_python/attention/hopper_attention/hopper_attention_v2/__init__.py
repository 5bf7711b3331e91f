"""v2: ping-pong of two warpgroups at the tensor cores."""
