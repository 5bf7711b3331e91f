"""Base version: its dense decode entry point."""
