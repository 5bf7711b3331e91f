"""Reads and compiles each CUTLASS example and writes its facts to ``knowledge/examples``.

Annotations written by hand in these files stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mla_var3.examples import catalog, compile_all, store
from mla_var3.examples.checklist import checklist
from mla_var3.examples.model import Compiled, Example
from mla_var3.examples.pin import EXAMPLES, Tree


@dataclass(frozen=True)
class Indexed:
    """What an index run found.

    Attributes:
        examples: By id.
        changed: Ids whose file was written.
        vanished: Ids of files that the tree no longer has; they are left alone.
    """

    examples: Mapping[str, Example]
    changed: tuple[str, ...]
    vanished: tuple[str, ...]

    @property
    def compiled(self) -> int:
        """Examples with static facts."""
        return sum(bool(one.compiled and one.compiled.kernels) for one in self.examples.values())


def index(
    root: Path,
    tree: Tree,
    entries: Sequence[catalog.Entry],
    *,
    compile_them: bool = True,
    workers: int | None = None,
    cache_dir: Path | None = None,
    timeout: float = compile_all.TIMEOUT_S,
    progress: Callable[[str], None] = lambda _text: None,
) -> Indexed:
    """Read and compile examples, and write ``knowledge/examples``.

    Each file is written as soon as its facts are known, so an interrupt loses nothing that ended.

    Args:
        root: Top of the checkout.
        tree: The fetched tree.
        entries: The examples to index.
        compile_them: Whether to compile; without it facts of unchanged files stay.
        workers: Examples compiled at a time.
        cache_dir: As for :func:`mla_var3.examples.compile_all.compile_entries`.
        timeout: Seconds each may take to compile.
        progress: Told of each example as it ends.
    """
    before = store.read(root)
    examples: dict[str, Example] = {}
    changed: list[str] = []

    def keep(entry: catalog.Entry, compiled: Compiled | None) -> None:
        name = entry.name
        examples[name] = annotated(entry, compiled, before.get(name))
        if store.write(root, name, examples[name]):
            changed.append(name)
        progress(_said(len(examples), len(entries), entry, compiled))

    if compile_them:
        compile_all.compile_entries(
            entries, workers=workers, cache_dir=cache_dir, timeout=timeout, progress=keep
        )
    else:
        for entry in entries:
            old = before.get(entry.name)
            keep(entry, old.compiled if old is not None and old.blob == entry.blob else None)
    present = {entry.name for entry in catalog.entries(tree)}
    vanished = tuple(sorted(set(before) - present))
    return Indexed(examples, tuple(sorted(changed)), vanished)


def annotated(entry: catalog.Entry, compiled: Compiled | None, old: Example | None) -> Example:
    """An example's facts, with the words of its file as it was.

    Words for lines are kept only while the file is the one that they were written for.
    """
    found = checklist(entry.source, compiled.kernels if compiled else ())
    same = old is not None and old.blob == entry.blob
    return Example(
        title=old.title if old else title_of(entry.path, entry.category),
        repository=entry.tree.pin.address,
        path=f"{EXAMPLES}/{entry.path}",
        commit=entry.tree.pin.commit,
        blob=entry.blob,
        topics=tuple(each.pattern for each in found) or ("cute-dsl",),
        category=entry.category,
        arch=entry.arch,
        goal=old.goal if old else "",
        kernels=tuple(dict.fromkeys(entry.source.kernels)),
        length=entry.source.length,
        checklist=found,
        compiled=compiled,
        annotations=old.annotations if old is not None and same else (),
    )


#: Folders that say nothing of what an example is about.
_SAY_NOTHING = frozenset({"experimental", "dsl_tutorials", "tutorial", "kernel", "cute"})


def title_of(path: str, category: str) -> str:
    """The title of an example that nobody has named yet: its file, and what it is about.

    ``fmha_bwd (Blackwell attention)``: as the titles of the others are, without what its own name
    says.
    """
    stem = path.rsplit("/", 1)[-1].removesuffix(".py")
    parts = [
        part for part in category.split("/")
        if part and part not in _SAY_NOTHING and not stem.startswith(part)
    ]  # fmt: skip
    words = " ".join(parts).replace("_", " ")
    return f"{stem} ({words[:1].upper()}{words[1:]})" if words else stem


def _said(number: int, of: int, entry: catalog.Entry, compiled: Compiled | None) -> str:
    if compiled is None:
        what = "read"
    elif compiled.kernels:
        what = f"{len(compiled.kernels)} kernel(s) compiled for {entry.arch}"
    else:
        what = f"not compiled: {compiled.reason}"
    return f"{number}/{of} {entry.path}: {what}"
