"""v3: two CTAs of a cluster split the keys and merge through distributed shared memory."""
