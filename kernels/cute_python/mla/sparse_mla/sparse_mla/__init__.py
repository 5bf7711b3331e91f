"""Base version: the producer warps convert to fp16 in registers."""
