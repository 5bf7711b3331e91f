"""The commands: command lines to everything below."""
