"""The kernel languages, one folder each behind one protocol."""
