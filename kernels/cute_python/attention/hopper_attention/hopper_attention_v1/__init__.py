"""v1: the scores of the next step are made under the output of this one."""
