"""Writes the table of docs/contributing/mutants.md: what is known of the derived wrong kernels.

Run by ``python -m generators.committed.mutants``; a test fails where the page is out of date.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from generators.committed.places import filled
from mla_var3 import front
from mla_var3.app import mutating
from mla_var3.languages import languages
from mla_var3.paths import repo_root, write_atomic
from mla_var3.runtime import registry, unreached
from mla_var3.runtime.registry import Version
from mla_var3.tables import cell, table

PAGE = "docs/contributing/mutants.md"
BEGIN, END = "<!-- mutants: python -m generators.committed.mutants -->", "<!-- /mutants -->"
SHOWN, SAME, ARGUED, OPEN = "shown", "same code", "argued", "open"
#: By version how many of its wrong kernels stand how.
Standing = tuple[Version, Counter[str]]


def standing(version: Version) -> Counter[str]:
    """How many wrong kernels of a version stand how; nothing where none is derived."""
    known, argued = mutating.known(version), unreached.same(version)
    return Counter(
        _of(known.get(one.place, {}).get(one.edit), one.edit in argued)
        for one in mutating.derived(version)
    )


def _of(said: str | None, is_argued: bool) -> str:
    if said is not None:
        return SAME if said == mutating.SAME_CODE else SHOWN
    return ARGUED if is_argued else OPEN


def every(versions: Iterable[Version]) -> Iterator[Standing]:
    """Those versions that wrong kernels are derived from, and how these stand."""
    found = ((version, standing(version)) for version in versions)
    return ((version, counts) for version, counts in found if counts)


def text(found: Sequence[Standing]) -> str:
    """Verdict for each language, and a table of those versions that have open ones."""
    by_language: dict[str, Counter[str]] = {}
    for version, counts in found:
        by_language.setdefault(version.language, Counter()).update(counts)
    verdicts = [f"- {_verdict(name, counts)}" for name, counts in by_language.items()]
    rows = [
        (f"`{version.key}`", *(f"{n:,}" for n in _row(counts)))
        for version, counts in found
        if counts[OPEN]
    ]
    header = ("Version", "Derived", "Shown", "Same code", "Argued", "Open")
    parts = ["\n".join(verdicts)]
    if rows:
        parts += ["Versions of which some are open:", table(header, rows, right=header[1:])]
    return "\n\n".join(parts)


def _row(counts: Counter[str]) -> tuple[int, ...]:
    return counts.total(), *(counts[kind] for kind in (SHOWN, SAME, ARGUED, OPEN))


def _verdict(language: str, counts: Counter[str]) -> str:
    derived, shown, same, argued, open_ = _row(counts)
    said = [f"a problem shows {shown:,}"]
    said += [f"{same:,} compile to the same code"] if same else []
    said += [f"{argued:,} are argued to change no result"] if argued else []
    title = cell(languages()[language].title)
    return f"{title}: {derived - open_:,} of {derived:,} are judged: {', '.join(said)}."


def page(old: str, found: Sequence[Standing]) -> str:
    """The page with its table written again.

    Raises:
        KnowledgeError: The page has no place for it.
    """
    return filled(PAGE, old, BEGIN, END, text(found))


def main() -> int:
    """Write the table of this checkout's page; returns the exit code."""
    path: Path = repo_root() / PAGE
    found = list(every(registry.versions()))
    write_atomic(path, page(path.read_text(encoding="utf-8"), found))
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    front.run("generators.committed.mutants:main")
