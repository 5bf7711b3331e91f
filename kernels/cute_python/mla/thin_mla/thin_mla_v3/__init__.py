"""v3: early launch (PDL) and key loads, and a flag-free merge through L2."""
