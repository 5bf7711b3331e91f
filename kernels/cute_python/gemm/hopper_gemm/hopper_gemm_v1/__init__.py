"""v1: a ring of stages, so that TMA runs ahead of the tensor cores."""
