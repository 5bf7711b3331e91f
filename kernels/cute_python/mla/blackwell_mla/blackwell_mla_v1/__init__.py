"""v1: a pair of CTAs multiplies as one, and makes each score once."""
