from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

#: A process that runs a tool which prints its own id and would go on for minutes.
BODY = """
import sys
from pathlib import Path
from mla_var3.static.tools import Runner, Tool

Runner().run(Tool("sh", Path("/bin/sh"), "1"), ["-c", f"echo $$ > {sys.argv[1]}; exec sleep 300"])
"""


def is_running(pid: int) -> bool:
    """Whether a process is there and is not merely waiting to be collected."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def until(condition, seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return met


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_a_compiler_dies_with_its_parent_even_by_kill_9(tmp_path):
    told = tmp_path / "pid"
    parent = subprocess.Popen([sys.executable, "-c", BODY, str(told)])
    try:
        assert until(lambda: told.is_file() and told.read_text().endswith("\n"))
        tool = int(told.read_text())
        assert is_running(tool)
    finally:
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    assert until(lambda: not is_running(tool))
