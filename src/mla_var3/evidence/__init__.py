"""Measurement records: what runs observed, and the source of every measured number on the site.

A file per run and design below ``results/``, appended to and never replaced (``runs``); a
``Record`` is one entry of it together with its run. ``frame()`` gives all of them as a pandas
table.
"""

from mla_var3.evidence.facts import LineFacts, Remark, StaticFacts
from mla_var3.evidence.fingerprint import Fingerprint
from mla_var3.evidence.frame import frame
from mla_var3.evidence.model import (
    CPU,
    SCHEMA_VERSION,
    STATIC,
    CheckedCase,
    Clocks,
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
)
from mla_var3.evidence.runs import Run, json_schema
from mla_var3.evidence.sources import git_state, identify
from mla_var3.evidence.states import State, is_stale, state_of
from mla_var3.evidence.store import (
    Index,
    address,
    at,
    files,
    find,
    is_address,
    newest,
    parse,
    read,
    records_of,
    sweep,
    write,
)

__all__ = [
    "CPU",
    "SCHEMA_VERSION",
    "STATIC",
    "CheckedCase",
    "Clocks",
    "Correctness",
    "Device",
    "Duration",
    "Energy",
    "Failed",
    "Fingerprint",
    "Git",
    "Index",
    "KernelIdentity",
    "LineFacts",
    "Mode",
    "Outcome",
    "Passed",
    "Protocol",
    "Record",
    "Remark",
    "Run",
    "Scalar",
    "Skipped",
    "Stage",
    "State",
    "StaticFacts",
    "address",
    "at",
    "files",
    "find",
    "frame",
    "git_state",
    "identify",
    "is_address",
    "is_stale",
    "json_schema",
    "newest",
    "parse",
    "read",
    "records_of",
    "state_of",
    "sweep",
    "write",
]
