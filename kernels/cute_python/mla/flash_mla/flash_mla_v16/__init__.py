"""v16: places of keys are found before their tile is free."""
