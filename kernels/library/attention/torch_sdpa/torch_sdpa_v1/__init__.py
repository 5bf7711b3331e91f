"""v1: the back end that every device has, plain matrix products."""
