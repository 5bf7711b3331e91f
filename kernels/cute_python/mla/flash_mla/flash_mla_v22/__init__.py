"""v22: odd row tiles share no keys, and short sequences are cut into more parts."""
