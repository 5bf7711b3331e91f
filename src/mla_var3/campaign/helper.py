"""Runs pieces of a sweep in a process beside a worker's, so that a crash ends no worker.

The process is kept from piece to piece, since its start (torch, the driver) takes as long as
several cases: 4 s on a host with two H200s, and a timed case 0.7 s. It ends where a case failed and
the GPU answers no more, since what a faulty kernel left there would fail the next ones.
``python -m mla_var3.campaign.helper`` reads a list of cases per line and prints a line
per outcome.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any

from mla_var3 import forked, front
from mla_var3.campaign import cases
from mla_var3.campaign.cases import Case
from mla_var3.errors import ToolchainError

#: As JSON holds cases and outcomes.
Content = Mapping[str, Any]


class Helper:
    """The process beside one thread of a worker, started where there is none."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[str] | None = None

    def run(self, piece: Sequence[Content]) -> list[Content]:
        """Run a piece's cases one after another, and so in one run.

        Returns:
            An outcome per case; those that the process did not come to are failed.
        """
        process, made = self._started(), list[Content]()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(list(piece)) + "\n")
            process.stdin.flush()
            while len(made) < len(piece) and (line := process.stdout.readline()):
                if line.startswith("{"):
                    made.append(json.loads(line))
        except BrokenPipeError:
            pass  # It has ended, and says below how.
        if len(made) == len(piece):
            return made
        reason = self._end()
        return [*made, *(
            {"case": dict(case), "status": "failed", "reason": reason} for case in piece[len(made):]
        )]  # fmt: skip

    def _started(self) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._errors = tempfile.TemporaryFile(  # noqa: SIM115 - Closed with the process.
            "w+", encoding="utf-8", errors="replace"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mla_var3.campaign.helper"], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._errors, preexec_fn=forked.die_with_parent,
        )  # fmt: skip
        return self._process

    def _end(self) -> str:
        """End the process; says how it ended."""
        process, self._process = self._process, None
        assert process is not None
        assert self._errors is not None
        try:
            process.communicate()  # It ends with its input.
        except BrokenPipeError:
            process.wait()
        self._errors.seek(0)
        said = (self._errors.read().strip().splitlines() or ["no word"])[-1][:500]
        self._errors.close()
        return f"its process ended by code {process.returncode}: {said}"


_of_thread = threading.local()


def isolated(piece: Sequence[Content]) -> list[Content]:
    """Run cases in the process beside this thread, as ``Helper.run`` does."""
    if not hasattr(_of_thread, "helper"):
        _of_thread.helper = Helper()
    helper: Helper = _of_thread.helper
    return helper.run(piece)


def main() -> int:
    """Run the pieces that stdin holds, a line each, until it ends."""
    for line in sys.stdin:
        for content in json.loads(line):
            outcome = cases.run(Case.model_validate(content))
            print(outcome.model_dump_json(), flush=True)
            if outcome.status == "failed" and not _gpu_answers():
                raise ToolchainError("after a failed case the GPU answers no more in its process")
    return 0


def _gpu_answers() -> bool:
    """Whether the GPU takes work of this process, which an illegal access ends for good."""
    import torch

    if not torch.cuda.is_initialized():
        return True
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


if __name__ == "__main__":
    front.run("mla_var3.campaign.helper:main")
