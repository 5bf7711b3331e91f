"""Import path of mode ``nsys``: re-exports ``mla_var3.profiling.nsys``."""

from mla_var3.profiling.nsys import nsys_profile_plan

__all__ = ["nsys_profile_plan"]
