"""v19: little code runs once, and all who end with the same sequence merge it."""
