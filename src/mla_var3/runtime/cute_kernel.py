"""Door to the CuTe DSL's kernels (``mla_var3.languages.cute``)."""

from mla_var3.languages.cute.kernel import CuteKernel, CuteTiling

__all__ = ["CuteKernel", "CuteTiling"]
