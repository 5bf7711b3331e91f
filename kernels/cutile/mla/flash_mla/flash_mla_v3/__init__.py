"""v3: latents in chunks of columns, so that the next tile arrives while one is used."""
