"""One profiling run per GPU at a time, by a lock that ends with its process."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from mla_var3.errors import ToolchainError
from mla_var3.profiling import gpu_lock

HOLDER = """
import sys, time
from mla_var3.profiling import gpu_lock
gpu_lock.gpu_uuid = lambda: sys.argv[1]
with gpu_lock.held(print):
    print("mine", flush=True)
    time.sleep(100)
"""


@pytest.fixture
def board(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(gpu_lock.tempfile, "tempdir", None)
    monkeypatch.setattr(gpu_lock, "gpu_uuid", lambda: "a-board")
    return "a-board"


def test_one_process_may_ask_twice(board):
    with gpu_lock.held(pytest.fail), gpu_lock.held(pytest.fail):
        pass
    with gpu_lock.held(pytest.fail):
        pass


def test_another_process_waits_and_a_killed_one_lets_go(board):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, board], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "mine\n"
        told = []
        with (
            pytest.raises(ToolchainError, match=r"has had GPU a-board for 0\.1 s .*a-board\.lock"),
            gpu_lock.held(told.append, patience_s=0.1),
        ):
            pytest.fail("both at once")
        assert told == ["another profiling run has GPU a-board; waiting for it"]
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with gpu_lock.held(pytest.fail):
            pass
    finally:
        holder.kill()
        holder.wait()


def test_another_board_is_free(board, monkeypatch):
    with gpu_lock.held(pytest.fail):
        monkeypatch.setattr(gpu_lock, "gpu_uuid", lambda: "another")
        with gpu_lock.held(pytest.fail):
            pass
