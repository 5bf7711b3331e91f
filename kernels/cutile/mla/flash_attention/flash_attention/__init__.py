"""Base version: one block per head and query tile, every key tile masked."""
