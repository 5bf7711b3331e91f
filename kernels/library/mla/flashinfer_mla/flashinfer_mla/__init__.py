"""Base version: FlashInfer's paged MLA wrapper, planned once."""
