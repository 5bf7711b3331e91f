"""FlashMLA: warp-specialized attention over the latent cache (absorbed MLA) on Hopper."""
