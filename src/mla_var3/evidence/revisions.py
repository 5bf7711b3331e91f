"""Table of workload revisions: figures of each problem's inputs and reference, and tolerances.

A revision is told by what a problem's own code gives on its check problems, not by how that code
is written: a figure per tensor, equal within what processors differ in. A record checked on another
revision is stale. The table is committed; ``app.codes`` fills it in.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from mla_var3.blobs import once_per_content
from mla_var3.evidence import builds
from mla_var3.evidence.fingerprint import Digest, digest
from mla_var3.evidence.model import Record, Scalar
from mla_var3.paths import out_dir, results_dir, write_atomic

#: Two processors sum in another order, which in fp32 shows in the sixth digit at most.
RELATIVE = 1e-4


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Tensor(_Model):
    """An input or a reference output, in few figures.

    Attributes:
        shape: Its extents.
        dtype: Its element type.
        norm: Root of the mean square of its finite elements.
        sample: Its projection on a fixed pattern of signs, over the root of their number.
        infinite: Elements that are not finite.
    """

    shape: tuple[int, ...]
    dtype: str
    norm: float
    sample: float
    infinite: int = 0

    def like(self, other: Tensor) -> bool:
        """Whether both are the same tensor, made by different processors perhaps."""
        exact = ("shape", "dtype", "infinite")
        room = RELATIVE * max(abs(self.norm), abs(other.norm), 1e-30)
        return all(getattr(self, name) == getattr(other, name) for name in exact) and all(
            math.isclose(getattr(self, name), getattr(other, name), abs_tol=room)
            for name in ("norm", "sample")
        )


class Observed(_Model):
    """What a problem's code gave on one of its check problems.

    Attributes:
        problem: The sizes, with what else shapes the inputs.
        tensors: Inputs in order as ``input0``, ..., and reference outputs by name.
        tolerance: Of each output: over the whole, over a row, and of which kind.
    """

    problem: dict[str, Scalar]
    tensors: dict[str, Tensor]
    tolerance: dict[str, tuple[float, float, str]]

    def like(self, other: Observed) -> bool:
        """Whether the same was observed."""
        return not any(self.differences(other))

    def differences(self, other: Observed) -> Iterator[str]:
        """What differs, a few words each."""
        # What shapes the inputs and only one of them names shows in the tensors.
        both = self.problem.keys() & other.problem.keys()
        if any(self.problem[name] != other.problem[name] for name in both):
            yield "other check problems"
            return
        for name in sorted(self.tensors.keys() | other.tensors.keys()):
            one, two = self.tensors.get(name), other.tensors.get(name)
            if one is None or two is None or not one.like(two):
                yield name
        for name in sorted(self.tolerance.keys() | other.tolerance.keys()):
            if self.tolerance.get(name) != other.tolerance.get(name):
                yield f"tolerance of {name}"


class Revision(_Model):
    """One state of a problem's inputs, reference and tolerance.

    Attributes:
        id: Names it in records.
        observed: What it gives.
        why: Why it was changed to this, where that was declared.
    """

    id: Digest
    observed: tuple[Observed, ...]
    why: str | None = None

    def like(self, observed: Sequence[Observed]) -> bool:
        """Whether the same was observed."""
        return len(observed) == len(self.observed) and all(
            one.like(other) for one, other in zip(self.observed, observed, strict=True)
        )


class Table(_Model):
    """Revisions by problem, such as ``mla.LatentProblem``; today's last.

    Records that name no revision were made under the first.

    Attributes:
        problems: The revisions.
        sources: Digest of what each problem's sources said when it was last run.
    """

    sources: dict[str, Digest] = {}
    problems: dict[str, tuple[Revision, ...]] = {}

    def differing(self) -> list[str]:
        """Problems whose sources say something else than when they were run."""
        return [name for name in self.problems if self.sources.get(name) != sources_of(name)]


def revision(observed: Sequence[Observed], why: str | None = None) -> Revision:
    """What was observed as a revision, with an id."""
    texts = [one.model_dump_json() for one in observed]
    return Revision(id=digest(texts), observed=tuple(observed), why=why)


def sources_of(problem: str) -> Digest:
    """Digest of what the sources of a problem say, comments aside.

    Args:
        problem: Its name, such as ``mla.LatentProblem``.
    """
    root = Path(__file__).parents[1] / "workloads"
    layer = problem.partition(".")[0]
    files = [*root.glob("*.py"), *(root / layer).rglob("*.py")]
    return digest(
        f"{path.relative_to(root).as_posix()} {builds.syntax_of(path)}" for path in sorted(files)
    )


def path_of(root: Path | None = None) -> Path:
    """Where the table lies."""
    return (root or results_dir()) / builds.FOLDER / "workloads.json"


def read(path: Path) -> Table:
    """The table at ``path``; an empty one where there is none.

    Raises:
        RecordError: It is not a table.
    """
    return builds.table_at(path, Table, "revisions")


def write(table: Table, path: Path) -> None:
    """Write a table, a line per observed problem."""
    content = table.model_dump(mode="json")
    write_atomic(path, "\n".join(builds.lines(content, leaf="tensors")) + "\n")


@once_per_content  # Hundreds of records ask for it.
def _read(path: Path) -> Table:
    return read(path)


def _table(root: Path | None = None) -> Table:
    path = path_of(root)
    return _read(path) if path.is_file() else Table()


def _revisions(problem: str) -> tuple[Revision, ...]:
    """Revisions of a problem: as committed, or as tried where its sources were edited since."""
    committed, tried = _table(), _table(out_dir())
    if problem not in tried.problems:
        return committed.problems.get(problem, ())
    is_of_today = tried.sources.get(problem) == sources_of(problem)
    edited = committed.sources.get(problem) != sources_of(problem)
    return (tried if is_of_today and edited else committed).problems.get(problem, ())


def today(problem: str) -> str | None:
    """Id of today's revision of a problem; None where the table does not have it."""
    found = _revisions(problem)
    return found[-1].id if found else None


def known() -> set[str]:
    """Ids of all revisions that the table has."""
    found = [_revisions(problem) for problem in _table().problems]
    return {revision.id for each in found for revision in each}


def changes(record: Record, problem: str) -> Iterator[str]:
    """Sentence that a record was checked against another reference or on other inputs.

    Args:
        record: The record.
        problem: What its version computes, such as ``mla.LatentProblem``.
    """
    found = _revisions(problem)
    if not found:
        return
    made = record.workload or found[0].id
    if made != found[-1].id:
        why = f" ({found[-1].why})" if found[-1].why else ""
        yield f"inputs, reference or tolerance of {problem} changed{why}"
