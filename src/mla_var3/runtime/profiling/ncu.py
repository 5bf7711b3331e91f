"""Import path of mode ``ncu``: re-exports ``mla_var3.profiling.ncu``."""

from mla_var3.profiling.ncu import ncu_profile_plan

__all__ = ["ncu_profile_plan"]
