"""Base version: its paged wrapper, planned once."""
