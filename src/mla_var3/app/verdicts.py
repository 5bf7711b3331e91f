"""What ``check`` found of each problem, kept by all that it rests on.

A problem that was right is right again while its version's sources, this package, what is installed
and the problem itself are the same: ``check`` takes that from the cache and says so. What was
wrong or skipped is never kept, and nothing is where a GPU runs it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mla_var3.blobs import blob_of
from mla_var3.cache import Cache, key_of
from mla_var3.emulator.identity import versions as installed
from mla_var3.errors import ToolchainError
from mla_var3.paths import kernels_dir, relative, repo_root
from mla_var3.runtime import unreached
from mla_var3.runtime.cases import Case
from mla_var3.runtime.execution import Facts
from mla_var3.runtime.registry import Version

#: Part of every key: raise it when an entry changes its meaning.
_FORM = 1
_FILE = "outcomes.json"
_LEFT = {"__pycache__", "node_modules"}
#: Variables by which what is installed behaves otherwise.
_VARIABLES = ("CUDA_", "CUTE_", "CUTLASS_", "TILE", "TORCH_", "TRITON_")


@dataclass(frozen=True)
class CheckOutcome:
    """Result of checking one version on one problem; sent between processes.

    Attributes:
        version: The version.
        slug: The problem.
        error: Largest relative error.
        explanation: What is wrong; empty when nothing is.
        skipped: Why it was not run; empty when it was.
        order: The order in which its blocks started; None where nobody chose it.
        facts: Which ways its branches, loops and indices went.
        kept: When it was run, in UTC, where that was in an earlier check; empty where in this one.
    """

    version: str
    slug: str
    error: float = 0.0
    explanation: str = ""
    skipped: str = ""
    order: str | None = None
    facts: Facts = field(default_factory=dict, repr=False)
    kept: str = ""

    def line(self) -> str:
        """Verdict with markup for the console."""
        if self.skipped:
            return f"{self.version:<24} {self.slug:<52} [yellow]skipped[/yellow]"
        verdict = "[red]WRONG[/red]" if self.explanation else "[green]ok[/green]"
        when = f" on {self.kept[:10]}" if self.kept else ""
        return f"{self.version:<24} {self.slug:<52} error {self.error:.1e} {verdict}{when}"


def rests_on(version: Version, *, whole: bool = False) -> dict[str, Any]:
    """All that a verdict on a version rests on beside its problem.

    Args:
        version: The version.
        whole: Whether it rests on all kernels, as a call of a server does.
    """
    return {
        "form": _FORM,
        "version": version.key,
        "sources": _told(kernels_dir()) if whole else version.sources(),
        "argued": blob_of(unreached.path_of(version)),
        # The adapters of others' kernels run what was fetched.
        "code": [_told(Path(__file__).parents[1]), _told(repo_root() / "third_party")],
        "installed": installed(),
        "machine": platform.machine(),
        "settings": {k: v for k, v in sorted(os.environ.items()) if k.startswith(_VARIABLES)},
    }


def _told(folder: Path) -> str:
    """Of each file below a folder, figures of devices among them; not of what others leave."""
    files = (p for p in sorted(folder.rglob("*")) if not _LEFT & {*p.parts} and p.is_file())
    return key_of({relative(file, folder): blob_of(file) for file in files})


@dataclass(frozen=True)
class Place:
    """Where outcomes are kept, while nothing that they rest on is edited.

    Attributes:
        version: Their version.
        problems: Its problems, or the name of a call of a server.
        key: Of all that they rest on.
    """

    version: Version
    problems: tuple[Case, ...] | str
    key: str

    @classmethod
    def of(
        cls,
        version: Version,
        problems: tuple[Case, ...] | str,
        rests: Mapping[str, Any] | None = None,
    ) -> Place:
        """The place of problems, or of a call of a server.

        Args:
            version: Their version.
            problems: Its problems, or the name of a call.
            rests: What verdicts on it rested on at some time; what they do now by default.
        """
        whole = isinstance(problems, str)
        told = problems if isinstance(problems, str) else [repr(case) for case in problems]
        rests = rests_on(version, whole=whole) if rests is None else rests
        return cls(version, problems, key_of({**rests, "problems": told}))

    def kept(self) -> list[CheckOutcome] | None:
        """What an earlier check found; None where none did."""
        found = Cache().get(self.key)
        if found is None or _FILE not in found:
            return None
        entry = json.loads(found[_FILE])
        return [
            CheckOutcome(
                **one | {"facts": {(kind, place): set(ways) for kind, place, ways in one["facts"]}},
                kept=entry["time"],
            )
            for one in entry["outcomes"]
        ]

    def keep(self, outcomes: Sequence[CheckOutcome]) -> None:
        """Keep what was found, if all of it ran and is right, and nothing was edited meanwhile.

        Nothing is kept where the cache cannot be written, and what is kept already stays.
        """
        if any(one.explanation or one.skipped for one in outcomes):
            return
        if self.of(self.version, self.problems) != self:
            return
        entry = {
            "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
            "outcomes": [_plain(one) for one in outcomes],
        }
        with contextlib.suppress(ToolchainError):
            Cache().put(self.key, {_FILE: json.dumps(entry).encode()})

    def drop(self) -> None:
        """Forget what an earlier check found."""
        Cache().discard(self.key)


def _plain(outcome: CheckOutcome) -> dict[str, Any]:
    facts = [[kind, place, sorted(ways)] for (kind, place), ways in outcome.facts.items()]
    plain = {f.name: getattr(outcome, f.name) for f in dataclasses.fields(outcome)}
    return {name: value for name, value in plain.items() if name != "kept"} | {"facts": facts}
