"""Wrong kernels: a version with one edit of its sources, run by the problems of its check.

The edited text is what Python and the kernel's compiler read, in a process of its own; no file
changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mla_var3.app import checking, edited
from mla_var3.errors import HyperMlaError, PlanError, TilingError
from mla_var3.paths import repo_root
from mla_var3.runtime import registry
from tests import warm


@dataclass(frozen=True)
class Wrong:
    """One edit.

    Attributes:
        design: Qualified name, such as ``flash_mla@cutile-dsl``.
        version: Such as ``v0``.
        file: Path from the top of the checkout.
        find: Text that stands once in it, or ``#n`` after it says which occurrence.
        put: What stands there instead.
        why: What a reader would overlook.
        shown: The problem that is run first, since it showed the edit before.
    """

    design: str
    version: str
    file: str
    find: str
    put: str
    why: str = ""
    shown: str = ""

    def text(self) -> str:
        """The file with the edit made."""
        source = (repo_root() / self.file).read_text("utf-8")
        if self.find == source:
            return self.put
        found, _, nth = self.find.rpartition(" #")
        find, place = (found, int(nth)) if found and nth.isdigit() else (self.find, 0)
        parts = source.split(find)
        assert len(parts) > max(place, 1), f"{self.file} holds {find!r} {len(parts) - 1} times"
        assert place or len(parts) == 2, f"{self.file} holds {find!r} {len(parts) - 1} times"
        at = place or 1
        return find.join(parts[:at]) + self.put + find.join(parts[at:])


def verdict(wrong: Wrong, budget: float = 60.0) -> str:
    """What the check says of a wrong kernel first; empty where it lets it pass.

    Raises:
        TimeoutError: The check said nothing within that many seconds, which is neither.
        PlanError: A problem makes no sense, whatever the kernel; likewise TilingError.
    """
    # A fork would have the kernel's modules as other tests imported them, without the edit.
    fresh = warm.processes()
    ours, theirs = fresh.Pipe(False)
    process = fresh.Process(target=_judged, args=(wrong, theirs))
    process.start()
    theirs.close()
    ended = ours.poll(budget)
    said: str | HyperMlaError = ours.recv() if ended else ""
    process.kill()
    process.join()
    if not ended:
        raise TimeoutError(f"{wrong.file}: no verdict within {budget:.0f} s: {wrong.why}")
    if isinstance(said, HyperMlaError):
        raise said
    return said


def _judged(wrong: Wrong, pipe: Any) -> None:
    import torch

    torch.set_num_threads(1)
    edited.play(repo_root() / wrong.file, wrong.text())
    said: str | HyperMlaError = ""
    try:
        version = registry.find(wrong.design, wrong.version)
        those = checking.cases_of(version)
        for case in sorted(those, key=lambda one: one.plan.slug() != wrong.shown):
            outcome = checking.check_case(version, case)
            if outcome.explanation:
                said = f"{outcome.slug}: {outcome.explanation}"
                break
    except (PlanError, TilingError) as error:
        said = error
    except HyperMlaError as error:
        said = str(error)
    except Exception as error:  # noqa: BLE001  # A compiler that refuses the edit has seen it.
        said = f"{type(error).__name__}: {error}"
    pipe.send(said)
