"""Base version: the kernel of ``flash_mla_sparse_fwd``."""
