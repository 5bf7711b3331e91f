"""Running a plan and recording what came of it: without a GPU, timed, or under a profiler."""

from mla_var3.profiling.annotation import annotation_profile_plan
from mla_var3.profiling.event import ProfileResult, event_profile_plan
from mla_var3.profiling.ncu import ncu_profile_plan
from mla_var3.profiling.nsys import nsys_profile_plan
from mla_var3.profiling.static_profile import StaticResult, static_profile_plan

__all__ = [
    "ProfileResult",
    "StaticResult",
    "annotation_profile_plan",
    "event_profile_plan",
    "ncu_profile_plan",
    "nsys_profile_plan",
    "static_profile_plan",
]
