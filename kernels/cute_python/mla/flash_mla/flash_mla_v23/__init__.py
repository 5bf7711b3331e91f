"""v23: odd row tiles share keys in pairs; finer cuts; three parts meet in registers."""
