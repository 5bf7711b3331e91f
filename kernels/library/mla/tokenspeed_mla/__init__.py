"""TokenSpeed-MLA, latent decode in the CuTe DSL on Blackwell."""
