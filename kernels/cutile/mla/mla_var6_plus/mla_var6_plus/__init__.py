"""Base version: one block-specialized launch, half of its blocks for each path."""
