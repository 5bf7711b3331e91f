"""Matrix multiplication designs."""
