"""One normalization per row: the row stays in registers."""
