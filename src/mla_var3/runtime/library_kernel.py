"""Import path of library kernels for plans: re-exports ``mla_var3.languages.library``."""

from mla_var3.languages.library.finding import Requirement
from mla_var3.languages.library.kernel import LibraryKernel
from mla_var3.languages.library.plan import LibraryPlan

__all__ = ["LibraryKernel", "LibraryPlan", "Requirement"]
