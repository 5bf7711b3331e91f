"""Base version: every tile masked, all keys walked."""
