"""Import path of mode ``event``: re-exports ``mla_var3.profiling.event``."""

from mla_var3.profiling.event import event_profile_plan

__all__ = ["event_profile_plan"]
