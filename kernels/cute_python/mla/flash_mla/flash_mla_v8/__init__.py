"""v8: halves of a merge arrive in pieces, where the queries were."""
