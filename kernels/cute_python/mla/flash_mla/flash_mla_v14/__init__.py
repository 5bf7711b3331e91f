"""v14: parts of sequences are merged within attention."""
