"""v6: values of tokens pass L1 by."""
