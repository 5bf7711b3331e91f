"""Kit: building blocks that versions of CuTe DSL kernels are composed of; none names a version."""
