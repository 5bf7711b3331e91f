"""``python -m tests.mutation [--all] [-n 400] [--only TEXT]``: how many wrong changes tests catch.

A sample is the same until the changed lines themselves are others, since it goes by the digest of
what changes. ``score.toml`` has the score that may not fall, and the changes that alter nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from .mutants import Module, Mutant
from .running import PACKAGE, ROOMS, Runner, Verdict, run

SCORE = Path(__file__).with_name("score.toml")


def every_mutant(left_out: Iterable[str]) -> list[Mutant]:
    """All mutants of the rooms but those of modules and functions that are left out."""
    left = set(left_out)
    found = []
    for path in sorted(path for room in ROOMS for path in (PACKAGE / room).rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        if file not in left:
            found += Module(path, file).mutants()
    return [m for m in found if f"{m.file} {m.where}" not in left]


def sample(mutants: list[Mutant], number: int, skip: int = 0) -> list[Mutant]:
    """As many of them, by the digest of what each changes, past the first ``skip``."""
    drawn = sorted(mutants, key=lambda m: hashlib.sha256(m.key.encode()).digest())
    return drawn[skip : skip + number]


class Count:
    """Counts verdicts, and says each as it comes."""

    def __init__(self, total: int, equivalent: dict[str, str]) -> None:
        self.total, self.equivalent = total, equivalent
        self.killed: Counter[str] = Counter()
        self.survived: list[Mutant] = []
        self.argued: list[Mutant] = []
        self.done = 0
        self.began = time.monotonic()

    def tell(self, mutant: Mutant, verdict: Verdict) -> None:
        self.done += 1
        if verdict.killer:
            self.killed[mutant.file.split("/")[0]] += 1
            how = f"killed by {verdict.killer}"
        elif mutant.key in self.equivalent:
            self.argued.append(mutant)
            how = f"argued: {self.equivalent[mutant.key]}"
        else:
            self.survived.append(mutant)
            how = f"SURVIVED {verdict.tests} tests" if verdict.tests else "REACHED BY NO TEST"
        place = f"{mutant.file}:{mutant.line}"
        print(
            f"[{self.done}/{self.total}] {place} {mutant.key.partition(' ')[2]}: {how}", flush=True
        )

    @property
    def score(self) -> float:
        """Killed per hundred that could be."""
        counted = self.killed.total() + len(self.survived)
        return 100.0 * self.killed.total() / counted if counted else 100.0

    def lines(self) -> list[str]:
        """What came of it."""
        rooms = []
        for room in ROOMS:
            left = sum(m.file.startswith(room) for m in self.survived)
            rooms.append(f"{room} {self.killed[room]} of {self.killed[room] + left}")
        return [
            *(f"survived: {m.file}:{m.line} {m.key}" for m in self.survived),
            f"{self.killed.total()} of {self.killed.total() + len(self.survived)} mutants killed "
            f"({'; '.join(rooms)}), {len(self.argued)} change nothing, as argued in "
            f"{SCORE.name}; {time.monotonic() - self.began:.0f} s",
        ]


def main(arguments: list[str]) -> int:
    """Run mutants; 1 where the score is below the committed one."""
    told = tomllib.loads(SCORE.read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(prog="nox -s mutation --", description=__doc__)
    parser.add_argument("--all", action="store_true", help="every mutant; takes hours")
    parser.add_argument("-n", type=int, default=told["sample"], help="how many of them")
    parser.add_argument(
        "--skip", type=int, default=0,
        help="leave out so many of the sample, as those that tests were written for",
    )  # fmt: skip
    parser.add_argument("--only", default="", help="those whose file, function or change has it")
    parser.add_argument("--seconds", type=float, default=60.0, help="of tests per mutant")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--again", action="store_true", help="look anew at what tests reach")
    chosen = parser.parse_args(arguments)
    mutants = every_mutant(told["left_out"])
    print(f"{len(mutants)} mutants of {' and '.join(ROOMS)}", flush=True)
    if chosen.only:
        mutants = [m for m in mutants if chosen.only in m.key]
    elif not chosen.all:
        mutants = sample(mutants, chosen.n, chosen.skip)
    count = Count(len(mutants), told["equivalent"])
    runner = Runner(
        mutants, seconds=chosen.seconds, workers=chosen.workers, tell=count.tell,
        again=chosen.again, elsewhere=told["elsewhere"],
    )  # fmt: skip
    if (code := run(runner)) != 0:
        print(f"error: pytest ended with {code}", file=sys.stderr)
        return 2
    print("\n".join(count.lines()))
    if not chosen.only and count.score < told["score"]:
        print(
            f"error: the score is {count.score:.1f} %, and was {told['score']} %", file=sys.stderr
        )
        return 1
    print(f"score {count.score:.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
