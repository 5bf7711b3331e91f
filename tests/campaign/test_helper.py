"""The process beside a worker: kept from piece to piece, and started again where it ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys

import pytest
import torch

from mla_var3.campaign import helper
from mla_var3.campaign.cases import Case, Outcome
from mla_var3.campaign.helper import Helper
from mla_var3.errors import ToolchainError


def content(**problem):
    case = Case(design="gemm", version="v0", target="sm_90", check=False, problem=problem)
    return case.model_dump(mode="json")


#: Refused before anything is compiled.
REFUSED = content(m=64, n=64, k=0)
#: Not a case, so that its process ends over it.
CRASHES = {**REFUSED, "mode": "none"}


def outcomes(found):
    return [Outcome.model_validate(one) for one in found]


@pytest.mark.slow
def test_pieces_share_a_process_until_a_case_ends_it():
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
    mine.end()


@pytest.mark.parametrize(("answers", "ended"), [(True, False), (False, True)])
def test_after_a_failed_case_the_process_ends_where_its_gpu_is_lost(monkeypatch, answers, ended):
    failed = Outcome(case=Case.model_validate(REFUSED), status="failed", reason="wrong")
    lines = [json.dumps([REFUSED, REFUSED])]

    def synchronize():
        if not answers:
            raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(helper.cases, "run", lambda case: failed)
    monkeypatch.setattr(helper.sys, "stdin", lines)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    with pytest.raises(ToolchainError) if ended else contextlib.nullcontext():
        assert helper.main() == 0


@pytest.mark.slow
def test_a_process_that_is_killed_between_pieces_is_started_again():
    mine = Helper()
    mine.run([REFUSED])
    assert mine._process is not None
    os.kill(mine._process.pid, signal.SIGKILL)
    mine._process.wait()
    assert [one.status for one in outcomes(mine.run([REFUSED]))] == ["refused"]
    mine.end()


def test_a_piece_whose_process_is_killed_runs_once_more_and_whole(monkeypatch):
    tries = []

    def tried(self, piece):
        tries.append(piece)
        return ([], -signal.SIGKILL, "no word") if len(tries) == 1 else ([{}] * len(piece), 0, "")

    monkeypatch.setattr(Helper, "_tried", tried)
    assert Helper().run([REFUSED, REFUSED]) == [{}, {}]
    assert tries == [[REFUSED, REFUSED]] * 2


def test_what_crashes_is_not_run_again(monkeypatch):
    tries = []
    monkeypatch.setattr(
        Helper, "_tried", lambda self, piece: tries.append(1) or ([], -signal.SIGSEGV, "no word")
    )
    (one,) = outcomes(Helper().run([REFUSED]))
    assert (one.status, tries) == ("failed", [1])


def test_a_process_that_does_not_start_fails_its_cases(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    (one,) = outcomes(helper.isolated([REFUSED]))
    assert (one.status, one.reason) == ("failed", "its process ended by code 1: no word")
