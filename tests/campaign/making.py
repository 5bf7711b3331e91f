"""Trials that tests make."""

from __future__ import annotations

from mla_var3.campaign.cases import Case, Outcome
from mla_var3.campaign.trials import Trial
from tests.evidence.making import timed_record


def trial(name, score, us=None, seconds=1.0, version="v0"):
    """A compiled candidate with a score, timed where ``us`` says so."""
    tilings = {"gemm": {"tile_m": name}} if name else {}
    case = Case(design="gemm", version=version, target="sm_90", tilings=tilings)
    made = Outcome(case=case, status="passed", record=timed_record())
    timed = us and Outcome(case=case, status="passed", record=timed_record(us), seconds=seconds)
    return Trial(made, score, timed or None)
