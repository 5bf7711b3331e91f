"""One matrix product: what a thread per element does."""
