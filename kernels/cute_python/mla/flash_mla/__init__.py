"""FlashMLA with explicit scheduling: latent attention by specialized warps of Hopper."""
