"""v2: latents in fp8, products in fp8."""
