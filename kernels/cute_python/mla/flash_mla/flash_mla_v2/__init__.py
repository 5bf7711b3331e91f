"""v2: the output leaves through shared memory and TMA."""
