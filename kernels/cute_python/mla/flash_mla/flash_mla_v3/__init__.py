"""v3: two CTAs split the keys and merge through distributed shared memory."""
