"""GEMM for Hopper, from one warpgroup without a pipeline to TMA multicast between CTAs."""
