"""Import path of mode ``annotation``: re-exports ``mla_var3.profiling.annotation``."""

from mla_var3.profiling.annotation import annotation_profile_plan

__all__ = ["annotation_profile_plan"]
