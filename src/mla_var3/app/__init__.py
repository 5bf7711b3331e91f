"""Commands of the project: each module turns a command line into calls of the rooms below."""
