"""v3: key loads wait for no barrier, and words in L2 say by themselves that they are there."""
