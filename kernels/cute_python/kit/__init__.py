"""Building blocks of kernels in the CuTe DSL; a version composes them, and none names a version."""
