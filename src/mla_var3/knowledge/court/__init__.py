"""The court for the advice: kernels with a known fault, and whether the right page comes first."""
