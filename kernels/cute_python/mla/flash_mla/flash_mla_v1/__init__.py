"""v1: lazy rescaling: the running maximum is raised only when it has to be."""
