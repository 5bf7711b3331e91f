"""Base version: flash_mla on old tokens, flash_attention on the newest, and a combine."""
