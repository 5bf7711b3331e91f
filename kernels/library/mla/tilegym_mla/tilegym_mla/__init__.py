"""Base version: its split-KV entry point."""
