"""Evaluation of the advice: whether it ranks the right page first on kernels of known fault."""
