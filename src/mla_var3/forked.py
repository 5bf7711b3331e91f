"""Runs functions in forked processes side by side, so that a crash or hang ends only its own.

They are forks of this process, or of one that has loaded modules and done nothing else.

Not pebble 5.2.3, which was tried: it keeps a thread in the parent for each process, and the next
process would be forked from a parent with threads; and its processes live on where the parent is
killed with -9.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import math
import multiprocessing
import os
import resource
import signal
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Generic, TypeVar

Key = TypeVar("Key")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Ended(Generic[Result]):
    """How one piece of work ended.

    Attributes:
        result: What it returned; None when it did not.
        failure: One sentence on why it did not.
        said: What it, or a library in it, wrote to stdout and stderr.
        crashed: Whether its process took too long or died, and so gave no answer at all.
        late: Whether it took too long.
        seconds: Wall time that it took.
    """

    result: Result | None
    failure: str | None
    said: str
    crashed: bool = False
    late: bool = False
    seconds: float = 0.0


@dataclass(frozen=True)
class _Running:
    process: BaseProcess
    pipe: Connection
    log: Path
    began: float
    timeout: float

    @property
    def deadline(self) -> float:
        return self.began + self.timeout

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


#: Of prctl(2): the signal that a process gets when its parent ends.
_PR_SET_PDEATHSIG = 1


#: Found before a fork, after which little may be loaded.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
#: The process that forked last: in a child its parent.
_forking = os.getpid()


def _note_parent() -> None:
    global _forking
    _forking = os.getpid()


def _leave_to_parent() -> None:
    """Keep a fork from what needs threads that only its parent has, and that it would wait for.

    Torch starts threads at its first large operation, and a fork's own would wait for them. What
    the parent no longer reaches may wait for a thread as it ends, as engines of the CuTe DSL do.
    """
    gc.freeze()
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "set_num_threads"):
        torch.set_num_threads(1)


os.register_at_fork(before=_note_parent, after_in_child=_leave_to_parent)


#: By which all of the project's forks start; whoever imports it has them do as said above.
FORKS = multiprocessing.get_context("fork")


def die_with_parent() -> None:
    """Have the kernel end this process when its parent does: a ``preexec_fn`` of subprocesses."""
    _ask_for_signal()
    if _LIBC is not None and os.getppid() != _forking:
        os._exit(1)  # It had ended before.


def asked_to_end_with_parent() -> None:
    """Have the kernel ask this process to end when its parent does: a ``preexec_fn`` too."""
    _ask_for_signal(signal.SIGTERM)


def _ask_for_signal(number: int = signal.SIGKILL) -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, number)


def end_with_parent() -> None:
    """Let this process end when its parent does, however that ends.

    Its parent is the thread that made it, which has to live as long as the process should.
    """
    _ask_for_signal()  # Of a process that was spawned, nobody here saw the fork.
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        os._exit(1)  # It had ended before.


def _context(load: Sequence[str] | None) -> Any:
    """What makes processes: forks of this one, or of one that has these modules alone."""
    if load is None:
        return FORKS
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *load])
    resource_tracker.ensure_running()  # Or the next would begin it, which lets interrupts through.
    # It leaves its mask to its forks: an interrupt while they begin would print a traceback each.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    return context


def run(
    work: Mapping[Key, Callable[[], Result]],
    *,
    folder: Path,
    workers: int,
    timeout: float,
    explain: Callable[[BaseException], str],
    load: Sequence[str] | None = None,
) -> Iterator[tuple[Key, Ended[Result]]]:
    """Run pieces of work side by side, each in a process of its own.

    The processes are forks, so the work may hold anything; its results are pickled. An interrupt,
    leaving the iteration, or the end of this process ends them all.

    A fork costs the more, the more memory is held here, and cannot use a GPU that was used here.
    With ``load`` they are forks of a process that did nothing but load modules, and the work is
    pickled too.

    Args:
        work: What to run, by key.
        folder: Where their output is kept meanwhile.
        workers: Processes at a time.
        timeout: Seconds each may take; ``math.inf`` for as long as it wants.
        explain: The sentence for an exception.
        load: Modules that are loaded once for all processes, where these hold nothing of this one.

    Yields:
        Keys and endings, as they end.
    """
    context = _context(load)
    waiting = list(work.items())
    running: dict[Key, _Running] = {}
    # An error of who iterates keeps this alive in its traceback, and Python waits for processes.
    stop = atexit.register(functools.partial(_stop_all, running))
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                key, task = waiting.pop(0)
                log = folder / f"log-{len(waiting)}"
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_child, args=(task, theirs, log, explain))
                process.start()
                theirs.close()
                running[key] = _Running(process, ours, log, time.monotonic(), timeout)
            left = min(one.deadline for one in running.values()) - time.monotonic()
            pipes = [one.pipe for one in running.values()]
            wait(pipes, timeout=None if math.isinf(left) else max(left, 0))
            for key, one in list(running.items()):
                if one.pipe.poll() or time.monotonic() >= one.deadline:
                    del running[key]
                    yield key, _ended(one)
    finally:
        atexit.unregister(stop)
        _stop_all(running)


def _child(
    task: Callable[[], Result],
    pipe: Connection,
    log: Path,
    explain: Callable[[BaseException], str],
) -> None:
    end_with_parent()
    # A crash is an answer: gigabytes of core file are not, and take longer than the work may.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # What the parent made ends in the parent: here it may wait for a thread that only the parent
    # has, as execution engines of the CuTe DSL do, for ever. There is no public way to say so.
    vars(weakref.finalize)["_registry"].clear()
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    except FileNotFoundError:
        os._exit(1)  # Who wanted this was interrupted meanwhile.
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        answer: tuple[Result | None, str | None] = (task(), None)
    except Exception as error:  # noqa: BLE001 - Whatever the work raises is its answer.
        answer = (None, explain(error))
    pipe.send(answer)
    pipe.close()


def _ended(one: _Running) -> Ended[Result]:
    try:
        if not one.pipe.poll():
            why = f"took longer than {one.timeout:g} s"
            return Ended(None, why, _said(one), crashed=True, late=True, seconds=one.seconds)
        result, failure = one.pipe.recv()
        return Ended(result, failure, _said(one), seconds=one.seconds)
    except EOFError:
        one.process.join()
        return Ended(None, _died(one), _said(one), crashed=True, seconds=one.seconds)
    finally:
        _stop(one)


def _died(one: _Running) -> str:
    code = one.process.exitcode or 0
    how = f"signal {-code}" if code < 0 else f"code {code}"
    last = " ".join(_said(one).splitlines()[-1:])
    return f"the process ended by {how}" + (f", after it said: {last}" if last else "")


def _said(one: _Running) -> str:
    return one.log.read_text(encoding="utf-8", errors="replace") if one.log.exists() else ""


def _stop_all(running: Mapping[Any, _Running]) -> None:
    for one in running.values():
        _stop(one)


def _stop(one: _Running) -> None:
    if one.process.is_alive():
        one.process.kill()
    one.process.join()
    one.pipe.close()
