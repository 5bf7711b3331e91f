"""What the problems of a version say of a wrong kernel: the work of ``check --mutants``."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from mla_var3 import forked
from mla_var3.app import checking, edited
from mla_var3.errors import HyperMlaError, NotExecutableError
from mla_var3.runtime.cases import Case
from mla_var3.runtime.registry import Version

#: Wrong kernels that a problem has shown, for each of which it is tried earlier.
KILLS = 3
#: What is kept of one that does not run, before the name of the error that it ends with.
REFUSED = "refused: "
#: Errors of the machine, not of the sources: they judge nothing.
NOT_ITS_OWN = (OSError, MemoryError, NotExecutableError)

Result = TypeVar("Result")


@dataclass(frozen=True)
class Wrong:
    """A wrong kernel: a version with one edit of one of its sources."""

    version: Version
    file: Path
    edit: str
    text: str

    @property
    def place(self) -> str:
        """The edited file below ``kernels/``."""
        return _below(self.file)


@dataclass(frozen=True)
class Judged:
    """What the problems of a version say of a wrong kernel.

    Attributes:
        slug: The problem that shows it; None where none does.
        refusal: What it ended with instead of a result; empty where it ran.
        error: Name of that error.
    """

    slug: str | None
    refusal: str = ""
    error: str = ""

    @property
    def kept(self) -> str | None:
        """What is kept: the problem, or that it was refused."""
        return f"{REFUSED}{self.error}" if self.refusal else self.slug

    @classmethod
    def of(cls, ended: forked.Ended[Self]) -> Self:
        """What came of judging; one that took too long shows nothing, one that died refuses.

        Raises:
            HyperMlaError: The machine's fault.
        """
        if ended.result is not None:
            return ended.result
        if ended.late:
            return cls(None)
        if not ended.crashed:
            raise HyperMlaError(ended.failure or "it was not judged")
        return cls(None, ended.failure or "the process died", "crash")

    @property
    def is_killed(self) -> bool:
        """Whether somebody ended its process, as whoever runs short of memory does."""
        return "signal 9" in self.refusal


def _below(file: Path) -> str:
    parts = file.parts
    return "/".join(parts[len(parts) - parts[::-1].index("kernels") :])


def judge(one: Wrong, cases: bytes, kills: Mapping[str, int], only: str | None = None) -> Judged:
    """What the problems of a version say of a wrong kernel. For a process of its own.

    Args:
        one: The wrong kernel.
        cases: The problems, pickled, since they are of the version's own classes.
        kills: How many wrong kernels each problem has shown; such come first.
        only: The one problem that is tried; all by default.

    Raises:
        OSError: The machine's fault, as are lack of memory and of the language.
    """
    import torch

    torch.set_num_threads(1)
    edited.play(one.file, one.text)
    try:
        found: list[Case] = pickle.loads(cases)
    except NOT_ITS_OWN:
        raise
    except Exception as error:  # noqa: BLE001  # The edit ends the import.
        return Judged(None, sentence(error), type(error).__name__)
    # Problems of one build come one after the other, since each takes a compile.
    found.sort(key=lambda case: (-(kills.get(case.plan.slug(), 0) // KILLS), case.build or 0))
    for case in found:
        slug = case.plan.slug()
        if only in (None, slug) and (said := of_case(one.version, case)) is not None:
            return dataclasses.replace(said, slug=slug)
    return Judged(None)


def alone(
    work: Callable[[], Result],
    folder: Path,
    timeout: float,
    nothing: str,
    explain: Callable[[BaseException], str] | None = None,
) -> tuple[Result, float]:
    """What work gives in a process of its own, and its seconds: this one is to import no kernel.

    Raises:
        HyperMlaError: It gave nothing.
    """
    runs = forked.run(
        {0: work}, folder=folder, workers=1, timeout=timeout, explain=explain or sentence
    )
    for _, ended in runs:
        if ended.result is not None:
            return ended.result, ended.seconds
        raise HyperMlaError(ended.failure or nothing)
    raise HyperMlaError(nothing)


def of_case(version: Version, case: Case) -> Judged | None:
    """What one problem says of a version; None where nothing is wrong."""
    from mla_var3.runtime.check import check_plan

    try:
        result = check_plan(
            case.plan, "cpu", case.order, case.runs, conflicts=False, metadata=case.metadata
        )
        wrong = checking.settled(version, case, result).explain()
    except NOT_ITS_OWN:
        raise
    except Exception as error:  # noqa: BLE001  # Whoever refuses the edit has seen it.
        return Judged(None, sentence(error), type(error).__name__)
    return Judged(None) if wrong else None


def sentence(error: BaseException) -> str:
    """An error with its name."""
    return f"{type(error).__name__}: {error}"
