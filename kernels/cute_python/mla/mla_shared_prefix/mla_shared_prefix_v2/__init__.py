"""v2: own tokens and prefix in one launch, on blocks of their own."""
