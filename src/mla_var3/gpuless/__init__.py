"""What programs for a GPU need to run without one, whatever executes their kernels."""
