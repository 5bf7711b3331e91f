"""Base version: the cache as it lies, latent queries beside the rotary ones."""
