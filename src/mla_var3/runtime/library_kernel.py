"""Door to kernels that are somebody's library (``mla_var3.languages.library``)."""

from mla_var3.languages.library.finding import Requirement
from mla_var3.languages.library.kernel import LibraryKernel

__all__ = ["LibraryKernel", "Requirement"]
