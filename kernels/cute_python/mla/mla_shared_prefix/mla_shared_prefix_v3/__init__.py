"""v3: each launch begins on the SMs that the one before leaves."""
