"""DeepSeek's FlashMLA: dense decode over a paged latent cache, for Hopper."""
