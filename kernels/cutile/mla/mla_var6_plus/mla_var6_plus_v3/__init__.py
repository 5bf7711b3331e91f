"""v3: a tile size for each path; the decompressed one puts keys on the MMA's rows."""
