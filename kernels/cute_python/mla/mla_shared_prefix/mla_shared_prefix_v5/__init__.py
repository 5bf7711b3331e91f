"""v5: the prefix is on its way to L2 while the own tokens compute."""
