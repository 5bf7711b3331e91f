"""v3: persistent CTAs take work item after work item."""
