"""v5: own tokens by the kernel of flash_mla v12, with lazy rescaling."""
