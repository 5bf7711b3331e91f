"""Base version: split and reduce."""
