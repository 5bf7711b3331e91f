"""Import path of mode ``nsys`` (``mla_var3.profiling.nsys``)."""

from mla_var3.profiling.nsys import nsys_profile_plan

__all__ = ["nsys_profile_plan"]
