"""Base version: producer warps gather fp8 tokens and convert them to fp16."""
