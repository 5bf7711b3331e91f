"""v3: launches overlap by programmatic dependent launch."""
