"""Base version: two CTAs make the same scores, and each accumulates half of the output."""
