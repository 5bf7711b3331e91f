"""What pages are made of: runs, the site that holds them, problems, and how versions compare."""
