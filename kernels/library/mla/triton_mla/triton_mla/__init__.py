"""Base version: a split-KV attention kernel, and a kernel that merges its parts."""
