"""Base version: one block per head and query tile; one load serves K and V."""
