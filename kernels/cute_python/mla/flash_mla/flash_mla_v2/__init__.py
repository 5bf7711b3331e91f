"""v2: the output is stored through shared memory and TMA."""
