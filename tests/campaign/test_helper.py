"""The process beside a worker: kept from piece to piece, ended by a failure, started again."""

from __future__ import annotations

import os
import signal
import sys

from mla_var3.campaign import helper
from mla_var3.campaign.cases import Case, Outcome
from mla_var3.campaign.helper import Helper


def content(**problem):
    case = Case(design="gemm", version="v0", target="sm_90", check=False, problem=problem)
    return case.model_dump(mode="json")


#: Refused before anything is compiled.
REFUSED = content(m=64, n=64, k=0)
#: Not a case, so that its process ends over it.
CRASHES = {**REFUSED, "mode": "none"}


def outcomes(found):
    return [Outcome.model_validate(one) for one in found]


def test_pieces_share_a_process_until_a_case_fails_in_it():
    mine = Helper()
    assert [one.status for one in outcomes(mine.run([REFUSED, REFUSED]))] == ["refused"] * 2
    first = mine._process
    assert first is not None
    mine.run([REFUSED])
    assert mine._process is first
    made = mine.run([REFUSED, CRASHES, REFUSED])
    assert [one["status"] for one in made] == ["refused", "failed", "failed"]
    assert "its process ended by code" in made[1]["reason"]
    assert first.poll() not in (None, 0)
    assert [one.status for one in outcomes(mine.run([REFUSED]))] == ["refused"]  # A new one.
    mine._end()


def test_a_process_that_is_killed_between_pieces_is_started_again():
    mine = Helper()
    mine.run([REFUSED])
    assert mine._process is not None
    os.kill(mine._process.pid, signal.SIGKILL)
    mine._process.wait()
    assert [one.status for one in outcomes(mine.run([REFUSED]))] == ["refused"]
    mine._end()


def test_a_process_that_does_not_start_fails_its_cases(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    (one,) = outcomes(helper.isolated([REFUSED]))
    assert (one.status, one.reason) == ("failed", "its process ended by code 1: no word")
