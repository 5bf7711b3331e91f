"""v17: parts in two bytes a value, merged by all who end with the same sequence."""
