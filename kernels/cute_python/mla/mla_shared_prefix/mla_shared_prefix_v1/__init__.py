"""v1: own tokens and prefix run side by side if rows are few, else the prefix first."""
