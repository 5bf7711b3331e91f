"""Writers of committed files that are generated; a test compares each file with its sources."""
