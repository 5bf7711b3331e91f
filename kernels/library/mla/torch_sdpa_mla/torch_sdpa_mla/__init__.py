"""Base version: torch chooses the back end."""
