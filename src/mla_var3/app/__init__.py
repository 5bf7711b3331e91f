"""Commands of the project: modules that parse a command line, and parts that they share."""
