"""v1: few rows side by side, many with the prefix first."""
