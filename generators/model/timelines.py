"""Reads committed timelines: what each warp of a launch did when, by the emulator's replay.

``python -m generators.committed.timelines`` makes them. Each holds a digest of the machine code
that the table of fingerprints states for its version. A version that was edited fails the build
until the table is written again, and one that compiles to other code until its timelines are.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from mla_var3 import inputs
from mla_var3.errors import KnowledgeError
from mla_var3.evidence import builds
from mla_var3.runtime.registry import Version

FOLDER = "knowledge/stories/timelines"
COMMAND = "python -m generators.committed.timelines"
#: What happened, from when to when, in cycles of the table.
Bar = tuple[str, int, int]


class Timeline(BaseModel):
    """A launch on a clock.

    Attributes:
        version: The version, as users type it.
        problem: Its problem.
        tiling: What differs from the default tiling.
        code: Digest of the version's machine code.
        cycles: Its end.
        lanes: Per CTA and lane (``0 left``, ``1 load 2``) what happened there.
        loaded: Bytes that copies from global memory brought, per CTA.
        terms: Products of the tensor cores (64 rows by columns by depth), per CTA.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str
    problem: dict[str, Any]
    tiling: dict[str, Any]
    code: str
    cycles: int
    lanes: dict[str, tuple[Bar, ...]]
    loaded: tuple[int, ...]
    terms: tuple[int, ...]

    @property
    def last_product(self) -> int:
        """When the last product of the first CTA ends."""
        ends = [
            end
            for name, lane in self.lanes.items()
            for what, _, end in lane
            if name.startswith("0 ") and what in ("scores", "output")
        ]
        return max(ends, default=self.cycles)


def code_of(version: Version, root: Path) -> str:
    """Digest of what a version compiles to, by the table of fingerprints.

    Raises:
        KnowledgeError: The table does not have the version.
    """
    path = builds.path_of(version.package, version.layer, version.design, root / "results")
    try:
        found = _table(path)[version.version]["builds"]
    except (OSError, KeyError) as error:
        raise KnowledgeError(f"{path.relative_to(root)} does not have {version.version}") from error
    return hashlib.sha256("\n".join(sorted(_codes(found))).encode()).hexdigest()[:16]


def _edited(version: Version, root: Path) -> list[str]:
    """Sources of a version that say something else than when the table was written."""
    path = builds.path_of(version.package, version.layer, version.design, root / "results")
    return builds.Version.model_validate(_table(path)[version.version]).differing()


@functools.lru_cache(maxsize=4)
def _read(path: Path, changed: int) -> Mapping[str, Any]:
    versions: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))["versions"]
    return versions


def _table(path: Path) -> Mapping[str, Any]:
    return _read(path, path.stat().st_mtime_ns)


def _codes(node: Any) -> Iterator[str]:
    """Machine code of all stages; older states of a version are builds as well."""
    if isinstance(node, dict):
        if isinstance(code := node.get("code"), str):
            yield code
        for child in node.values():
            yield from _codes(child)
    elif isinstance(node, list):
        for child in node:
            yield from _codes(child)


def load(root: Path, key: str, version: Version) -> Timeline:
    """A committed timeline.

    Args:
        root: Top of the checkout.
        key: Its name in ``knowledge/stories/timelines``.
        version: The version that it is of.

    Raises:
        KnowledgeError: It is missing or broken, or the version was edited since it was compiled,
            or compiles to other code by now.
    """
    path = root / FOLDER / f"{key}.json"
    name = f"{FOLDER}/{key}.json"
    if not path.is_file():
        raise KnowledgeError(f"{name} is missing; {COMMAND} {key} makes it")
    with inputs.faults_as(KnowledgeError, name):
        found = Timeline.model_validate_json(path.read_text(encoding="utf-8"))
    code = code_of(version, root)
    if edited := _edited(version, root):
        raise KnowledgeError(
            f"{name} is of {found.version} before {edited[0]} was edited; "
            f"nox -s codes -- write {version.key} says whether its machine code is another"
        )
    if found.code != code:
        raise KnowledgeError(
            f"{name} is of other machine code than {found.version} compiles to by now; "
            f"{COMMAND} {key} makes it anew"
        )
    return found
