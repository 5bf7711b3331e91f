"""Files of the repository that are made from records and runs: each has a test that compares."""
