"""A launch that hangs ends the process in one sentence, and what is to be kept is kept."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from mla_var3.errors import UsageError
from mla_var3.runtime import waiting

HUNG = """
import threading, torch
from mla_var3.runtime import waiting
torch.cuda.synchronize = threading.Event().wait
with waiting.last_words(lambda reason: print("kept:", reason, flush=True)):
    waiting.synchronize()
print("went on")
"""


def run(program, seconds):
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=100,
        env={**os.environ, waiting.VARIABLE: seconds},
    )  # fmt: skip


def test_a_hung_launch_ends_the_process_after_its_last_words():
    done = run(HUNG, "0.2")
    said = "a launch has not ended after 0.2 s (HYPERMLA_HANG_SECONDS allows longer)"
    assert (done.returncode, done.stdout) == (1, f"kept: {said}\n")
    assert done.stderr == f"error: {said}\n"


def test_what_fails_in_the_last_words_does_not_keep_the_process(tmp_path):
    done = run(HUNG.replace('print("kept:", reason, flush=True)', "1 / 0"), "0.2")
    assert (done.returncode, done.stdout) == (1, "")
    assert "a launch has not ended" in done.stderr


def test_a_launch_that_ends_leaves_no_watchdog(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append(1))
    monkeypatch.setattr(waiting, "_give_up", lambda seconds: pytest.fail("gave up"))
    monkeypatch.setenv(waiting.VARIABLE, "60")
    waiting.synchronize()
    assert waited == [1]


@pytest.mark.parametrize("said", ["soon", "0", "-1", "nan"])
def test_a_limit_is_a_number_above_zero(monkeypatch, said):
    monkeypatch.setenv(waiting.VARIABLE, said)
    with pytest.raises(UsageError, match=f"HYPERMLA_HANG_SECONDS={said}: not a number"):
        waiting.limit_s()


@pytest.mark.gpu
def test_a_real_hang_is_ended():
    program = HUNG.replace(
        "torch.cuda.synchronize = threading.Event().wait", "torch.cuda._sleep(10**15)"
    )
    done = run(program, "2")
    assert done.returncode == 1
    assert "a launch has not ended after 2 s" in done.stderr
