"""``python -m tests.fuzz [-n 100000] [--only NAME]``: mangled input for every parser.

Each input ends in a value or in one sentence: no traceback, no second line, no process started, no
memory above 2 GB, nothing that takes longer than 20 s. Inputs are read in forked batches, so that
one which breaks a promise takes no other with it; a batch of seeds is the same every time.
"""

from __future__ import annotations

import argparse
import builtins
import functools
import os
import resource
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from mla_var3 import forked
from mla_var3.errors import HyperMlaError
from tests.hostile import PARSERS, Parser

#: Bytes that a batch may take beyond what it began with, and altogether.
MEMORY = 2 << 30
LONGEST_S = 20
BATCH = 250
#: What no reading of an input does, by the names of Python's audit events.
FORBIDDEN = {
    "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.kill",
    "subprocess.Popen", "pty.spawn", "socket.connect", "socket.bind", "ctypes.dlopen",
}  # fmt: skip


@dataclass
class Batch:
    """What came of some inputs.

    Attributes:
        read: How many were read.
        refused: How many ended in one sentence.
        faults: Parser, seed and what was wrong.
        peak: Bytes of memory of the process at most.
        slowest: Seconds of the slowest.
    """

    read: int = 0
    refused: int = 0
    faults: list[tuple[str, int, str]] = field(default_factory=list)
    peak: int = 0
    slowest: float = 0.0

    def add(self, other: Batch) -> None:
        """Count those of another batch too."""
        self.read, self.refused = self.read + other.read, self.refused + other.refused
        self.faults += other.faults
        self.peak, self.slowest = max(self.peak, other.peak), max(self.slowest, other.slowest)


class _TooLong(BaseException):
    """An input takes longer than it may."""


def fault(parser: Parser, text: str, folder: Path) -> tuple[bool, str]:
    """Whether an input was read, and what was wrong."""
    try:
        parser(text, folder)
    except HyperMlaError as error:
        said = str(error)
        if not said.strip() or len(said.splitlines()) > 1 or len(said) > 2000:
            return False, f"not one sentence: {said!r:.300}"
        return False, ""
    except _TooLong:
        return False, f"took longer than {LONGEST_S} s"
    except BaseException as error:  # noqa: BLE001  # Whatever it is, it is a traceback.
        return False, f"{type(error).__name__}: {error!s:.300}"
    return True, ""


def batch(parser: Parser, seeds: range) -> Batch:
    """Read mangled inputs; in a process of its own, which it limits."""
    found, forbidden, guarded = Batch(), [], True
    ran: list[int] = []
    vars(builtins)["ran"] = ran

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if guarded and event in FORBIDDEN:
            forbidden.append(f"{event} {arguments!r:.200}")

    def too_long(*_: object) -> None:
        raise _TooLong

    parser(parser.sample, folder := Path(tempfile.mkdtemp()))  # What it loads, it loads here.
    sys.addaudithook(watch)
    signal.signal(signal.SIGALRM, too_long)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for seed in seeds:
        text = parser.mangle(parser.sample, seed)
        began = time.process_time()
        signal.alarm(LONGEST_S)
        read, wrong = fault(parser, text, folder)
        signal.alarm(0)
        found.slowest = max(found.slowest, time.process_time() - began)
        found.read, found.refused = found.read + read, found.refused + (not read)
        if said := wrong or " and ".join(["it ran what it read"] * bool(ran) + forbidden):
            found.faults.append((parser.name, seed, said))
        ran.clear()
        forbidden.clear()
    guarded = False
    found.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    if found.peak > MEMORY:
        found.faults.append((parser.name, seeds.start, f"the batch took {found.peak >> 20} MiB"))
    return found


def fuzz(number: int, parsers: list[Parser], workers: int, start: int = 0) -> Batch:
    """Read so many inputs, as many for each parser."""
    each = -(-number // len(parsers))
    work = {
        (parser.name, at): functools.partial(
            batch, parser, range(at, min(at + BATCH, start + each))
        )
        for at in range(start, start + each, BATCH)
        for parser in parsers
    }
    found, told = Batch(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder  # Of the batches.
        for (name, at), ended in forked.run(
            work, folder=Path(folder), workers=workers, timeout=LONGEST_S * BATCH, explain=repr
        ):
            if ended.result is None:
                found.faults.append((name, at, f"the batch ended: {ended.failure}"))
            else:
                found.add(ended.result)
            if time.monotonic() - told > 20:
                told = time.monotonic()
                print(f"{found.read + found.refused} inputs", file=sys.stderr, flush=True)
    return found


def main(arguments: list[str]) -> int:
    """Fuzz, and say what was found; 1 where an input broke a promise."""
    parser = argparse.ArgumentParser(prog="nox -s fuzz --", description=__doc__)
    parser.add_argument("-n", type=int, default=10_000, help="how many inputs")
    parser.add_argument("--only", default="", help="parsers whose name has it")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args(arguments)
    parsers = [one for one in PARSERS if chosen.only in one.name]
    if not parsers:
        print(f"error: no parser is called {chosen.only}", file=sys.stderr)
        return 2
    found = fuzz(chosen.n, parsers, chosen.workers, chosen.start)
    for name, seed, said in found.faults:
        print(f"FAULT {name}, seed {seed}: {said}")
    print(
        f"{found.read + found.refused} inputs of {len(parsers)} parsers: {found.read} read, "
        f"{found.refused} refused in one sentence each, {len(found.faults)} faults; at most "
        f"{found.peak >> 20} MiB, the slowest {found.slowest:.1f} s"
    )
    return int(bool(found.faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
