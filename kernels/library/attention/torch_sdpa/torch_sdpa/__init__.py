"""The base version: torch chooses the back end."""
