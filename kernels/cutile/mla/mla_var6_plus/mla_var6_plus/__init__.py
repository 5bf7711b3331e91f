"""Base version: one launch, its blocks split equally between the paths."""
