"""Records: one small JSON file per run, the only source of numbers on the site.

Path: ``results/<target>/<language package>/<layer>/<design>/<version>/<problem slug>/<mode>.json``
where target is a device key, ``static/sm_xx`` or ``cpu``. No time in the path, so that git shows a
number change. ``frame()`` gives all of them as a pandas table.
"""

from mla_var3.evidence.facts import (
    BarrierGroup,
    CuteFacts,
    CutileFacts,
    LineFacts,
    RegisterBudget,
    Remark,
    StaticFacts,
)
from mla_var3.evidence.fingerprint import Fingerprint
from mla_var3.evidence.frame import frame
from mla_var3.evidence.model import (
    CPU,
    SCHEMA_VERSION,
    STATIC,
    CheckedCase,
    Correctness,
    Device,
    Duration,
    Energy,
    Failed,
    Git,
    KernelIdentity,
    Mode,
    Outcome,
    Passed,
    Protocol,
    Record,
    Scalar,
    Skipped,
    Stage,
    json_schema,
)
from mla_var3.evidence.sources import git_state, identify
from mla_var3.evidence.states import State, is_stale, state_of
from mla_var3.evidence.store import find, parse, paths, read, relative, sweep, text_of, write

__all__ = [
    "CPU",
    "SCHEMA_VERSION",
    "STATIC",
    "BarrierGroup",
    "CheckedCase",
    "Correctness",
    "CuteFacts",
    "CutileFacts",
    "Device",
    "Duration",
    "Energy",
    "Failed",
    "Fingerprint",
    "Git",
    "KernelIdentity",
    "LineFacts",
    "Mode",
    "Outcome",
    "Passed",
    "Protocol",
    "Record",
    "RegisterBudget",
    "Remark",
    "Scalar",
    "Skipped",
    "Stage",
    "State",
    "StaticFacts",
    "find",
    "frame",
    "git_state",
    "identify",
    "is_stale",
    "json_schema",
    "parse",
    "paths",
    "read",
    "relative",
    "state_of",
    "sweep",
    "text_of",
    "write",
]
