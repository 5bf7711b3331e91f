"""v5: eight producer warps, two per scheduler."""
