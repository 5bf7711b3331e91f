"""v3: one launch, and the next tokens on their way to L2."""
