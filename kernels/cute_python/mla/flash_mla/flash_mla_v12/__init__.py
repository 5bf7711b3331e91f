"""v12: partial results leave piece by piece as well."""
