"""v1: clusters of a sequence exchange their outputs through L2, without a second kernel."""
