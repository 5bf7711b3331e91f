"""v1: a running maximum that is raised only when it has to be."""
