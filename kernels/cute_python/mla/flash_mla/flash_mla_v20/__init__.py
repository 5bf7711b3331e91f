"""v20: where many rows are merged, parts come from L2 into registers."""
