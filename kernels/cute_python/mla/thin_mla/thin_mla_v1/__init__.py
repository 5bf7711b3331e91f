"""v1: the clusters of a sequence merge through L2, without a merge kernel."""
