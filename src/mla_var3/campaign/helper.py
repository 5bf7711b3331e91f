"""Runs pieces of a sweep in a process beside a worker's, so that a crash ends no worker.

The process is kept from piece to piece, since its start (torch, the driver) takes as long as
many cases: 4 s on a host with two GPUs, and a timed case 0.2 to 0.7 s. ``begin`` starts those of
workers of our own before this process loads torch and Dask. It ends where a case failed and the GPU
answers no more, since what a faulty kernel left there would fail the next ones. Where it is killed
from outside, its piece is run once more.
``python -m mla_var3.campaign.helper`` reads a list of cases per line and prints a line
per outcome.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from mla_var3 import forked, front
from mla_var3.campaign import cases  # Loads no torch.
from mla_var3.campaign.cases import Case
from mla_var3.errors import HyperMlaError, ToolchainError
from mla_var3.runtime import registry

#: As JSON holds cases and outcomes.
Content = Mapping[str, Any]
#: Ends of a process that say nothing of its cases: somebody, or a machine out of memory, ended it.
KILLED = (-signal.SIGKILL, -signal.SIGTERM)
#: What a case needs beyond ``cases``, by mode, loaded before the first one is there.
NEEDED = {
    "event": ("mla_var3.profiling.running", "mla_var3.profiling.binding"),
    "static": ("mla_var3.profiling.static",),
}


class Helper:
    """The process beside one thread of a worker, started where there is none.

    Args:
        environment: Variables that it has besides those of this process.
        mode: What its cases will be, where that is known.
        versions: Of what, where that is known.
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        mode: str = "",
        versions: Sequence[str] = (),
    ) -> None:
        self._environment, self._mode = dict(environment or {}), mode
        self._versions = list(versions)
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[str] | None = None

    def run(self, piece: Sequence[Content]) -> list[Content]:
        """Run a piece's cases one after another, and so in one run.

        Returns:
            An outcome per case; those that the process did not come to are failed.
        """
        made, code, said = self._tried(piece)
        if code in KILLED:  # All of it, since times compare in one run only.
            made, code, said = self._tried(piece)
        reason = f"its process ended by code {code}: {said}"
        return [*made, *(
            {"case": dict(case), "status": "failed", "reason": reason} for case in piece[len(made):]
        )]  # fmt: skip

    def _tried(self, piece: Sequence[Content]) -> tuple[list[Content], int, str]:
        """Outcomes; where they are too few, how the process ended and the last it said."""
        process, made = self.start(), list[Content]()
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
        return (made, 0, "") if len(made) == len(piece) else (made, *self.end())

    def start(self) -> subprocess.Popen[str]:
        """The process; a new one where there is none that runs."""
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._errors = tempfile.TemporaryFile(  # noqa: SIM115 - Closed with the process.
            "w+", encoding="utf-8", errors="replace"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mla_var3.campaign.helper", self._mode, *self._versions],
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            env={**os.environ, **self._environment}, preexec_fn=forked.die_with_parent,
        )  # fmt: skip
        return self._process

    def end(self) -> tuple[int, str]:
        """End the process; returns how it ended and the last it said."""
        process, self._process = self._process, None
        if process is None:
            return 0, ""
        assert self._errors is not None
        try:
            process.communicate()  # It ends with its input.
        except BrokenPipeError:
            process.wait()
        self._errors.seek(0)
        said = (self._errors.read().strip().splitlines() or ["no word"])[-1][:500]
        self._errors.close()
        return process.returncode, said


#: Those of workers in this process, by the worker's name.
_prepared: dict[object, Helper] = {}
_of_thread = threading.local()


def has_gpus(workers: int) -> bool:
    """Whether there is a GPU per worker, by the device files: asking torch takes seconds.

    False says nothing: other systems have other files.
    """
    files = len(list(Path("/dev").glob("nvidia[0-9]*")))
    seen = _visible()
    return workers <= (min(files, len(seen)) if seen else files)


def begin(workers: int, mode: str, versions: Sequence[str] = ()) -> None:
    """Start the processes of workers 0, 1, ... of this process where they do not run yet.

    Args:
        workers: How many.
        mode: Of their cases; timed ones have a GPU each.
        versions: Of what, as a specification names them.
    """
    for number in range(workers):
        if number not in _prepared:
            visible = {"CUDA_VISIBLE_DEVICES": _gpu(number)} if mode == "event" else {}
            _prepared[number] = Helper(visible, mode, versions)
            _prepared[number].start()


def _gpu(number: int) -> str:
    """What ``CUDA_VISIBLE_DEVICES`` calls the GPU that is this one of those seen here."""
    seen = _visible()
    return seen[number] if number < len(seen) else str(number)


def _visible() -> list[str]:
    return [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]


@contextlib.contextmanager
def prepared(workers: int, mode: str) -> Iterator[None]:
    """As ``begin``; ends the processes in the end."""
    try:
        begin(workers, mode)
        yield
    finally:
        finish()
        for number in list(_prepared):
            _prepared.pop(number).end()


def finish() -> None:
    """Have the processes of ``begin`` end; a driver takes seconds to, so that nobody waits here."""
    for mine in _prepared.values():
        if mine._process is not None:
            mine._process.kill()


def isolated(piece: Sequence[Content]) -> list[Content]:
    """Run cases in the process beside this worker or thread, as ``Helper.run`` does."""
    if (mine := _prepared.get(_worker())) is not None:
        return mine.run(piece)
    if not hasattr(_of_thread, "helper"):
        _of_thread.helper = Helper()
    helper: Helper = _of_thread.helper
    return helper.run(piece)


def _worker() -> object:
    """Name of the Dask worker that runs this; None outside of one."""
    if not _prepared:
        return None
    from distributed import get_worker

    return get_worker().name


def main() -> int:
    """Run the pieces that stdin holds, a line each, until it ends."""
    mode, *versions = sys.argv[1:] or [""]
    _load(mode, versions)
    for line in sys.stdin:
        for content in json.loads(line):
            outcome = cases.run(Case.model_validate(content))
            print(outcome.model_dump_json(), flush=True)
            if outcome.status == "failed" and not _gpu_answers():
                raise ToolchainError("after a failed case the GPU answers no more in its process")
    return 0


def _load(mode: str, versions: Sequence[str]) -> None:
    """Load what cases of a mode take, the versions, and for timed ones the driver beside that."""
    driver = threading.Thread(target=_wake_gpu, daemon=True)
    if mode == "event":
        driver.start()
    for name in NEEDED.get(mode, ()):
        importlib.import_module(name)
    for text in versions:
        with contextlib.suppress(HyperMlaError):  # The specification's reader says what is wrong.
            for version in registry.select(*text.split()):
                version.plan_class()
    if mode == "event":
        driver.join()


def _wake_gpu() -> None:
    """Start the driver and the library of products, which the first case would wait for."""
    import torch

    if torch.cuda.is_available():
        one = torch.ones(16, 16, device="cuda")
        torch.mm(one, one)
        torch.cuda.synchronize()


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
