"""Hostile texts in every kind of content and in every field of a copy of the checkout."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import frontmatter
import site_records

from generators.model import terms
from generators.pages import lessons
from mla_var3 import devices, evidence
from mla_var3.errors import HyperMlaError
from mla_var3.evidence import Record
from mla_var3.examples import learning, pin, store
from mla_var3.gpuless import tables
from mla_var3.knowledge import pages
from tests import factories
from tests.hostile_pages import TEXTS

#: Raises where what a file now holds is not what its kind allows.
Sound = Callable[[Path, Path], object]


def _learning(path: Path, root: Path) -> None:
    faults = [said for file, said in learning.read(root)[1] if file.endswith(path.name)]
    if faults:
        raise ValueError(faults[0])


def _document(path: Path, root: Path) -> pages.Document:
    found = pages.load(path, root)
    if found.meta is None:
        raise ValueError(found.faults)
    return found


#: Tables: which files, and how each is read.
TABLES: dict[str, Sound] = {
    "knowledge/devices/*.toml": lambda path, root: devices.model.read(path),
    "knowledge/examples/*.toml": lambda path, root: store.read(root),
    "knowledge/learning-paths/*.toml": _learning,
    lessons.SOURCE: lambda path, root: lessons.load(root),
    pin.PIN: lambda path, root: pin.load(root),
    "results/conformance/tilegym.json": lambda path, root: tables.read(path),
}
#: Pages, likewise; what reads no front matter of a page takes whatever it has.
PAGES: dict[str, Sound] = {
    "knowledge/optimizations/*.md": _document,
    "knowledge/anti-patterns/*.md": _document,
    "knowledge/languages/**/*.md": _document,
    "knowledge/workloads/*.md": _document,
    "kernels/**/devlog.md": _document,
    "docs/glossary/*.md": lambda path, root: terms.read(path),
    "docs/learn/*.md": lambda path, root: None,
    "docs/messages/*.md": lambda path, root: None,
    "docs/*.md": lambda path, root: None,
}
#: A string on one line, of TOML and JSON alike.
_STRING = re.compile(r'(?<!")"(?!")((?:[^"\\\n]|\\.)*)"')
_REMARK = {
    "kind": "missed", "count": 1, "file": "x.py", "line": 1, "category": "memory", "message": "x",
}  # fmt: skip
#: Of a kind so many files are planted; each has dozens of fields.
MOST = 3


class Planted:
    """A copy of the checkout with hostile texts.

    Args:
        root: Top of the copy.

    Attributes:
        fields: How many fields of each kind hold one.
        files: Those that do.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.fields: dict[str, int] = {}
        self.files: set[str] = set()
        # What a page links to has to be there: such a text leads to another site.
        self._texts = itertools.cycle(
            text.replace("](y)", "](https://e.org)")
            for text in TEXTS.values()
            if "](<" not in text  # A page whose link leads to no file ends the build.
        )
        for pattern, sound in TABLES.items():
            for path in sorted(root.glob(pattern))[:MOST]:
                self._table(pattern, path, functools.partial(sound, path, root))
        for pattern, sound in PAGES.items():
            for path in sorted(root.glob(pattern))[:MOST]:
                self._page(pattern, path, functools.partial(sound, path, root))

    def records(self) -> None:
        """Records with a text in each field that takes one, beside those that are there."""
        facts = factories.static_facts(remarks=[_REMARK])
        static = factories.passed(stages=[factories.stage(static=facts)])
        slug = itertools.count()
        for made in (
            site_records.timed("flash_mla", "v1", 1, 90.0), site_records.failed(),
            factories.record("flash_mla", "v0", static),
        ) * 8:  # fmt: skip
            content = made.model_dump(mode="json") | {"slug": f"hostile{next(slug)}"}
            for holder, key in [*_leaves(content, words=False)]:
                old, holder[key] = holder[key], self._line()
                if key in ("key", "time") or not _holds(Record.model_validate, content):
                    holder[key] = old
                else:
                    self.fields["records"] = self.fields.get("records", 0) + 1
            path, _ = evidence.write(Record.model_validate(content), self.root / "results")
            self.files.add(path.relative_to(self.root).as_posix())

    def sources(self) -> None:
        """Docstrings and comments of kernels, which pages show as words and as code."""
        for path in sorted(self.root.glob("kernels/**/*.py")):
            code, text = path.read_text(encoding="utf-8"), self._line()
            if code.startswith('"""') and text.isprintable() and "\\" not in text:
                head, rest = code[3:].split('"""', 1)
                path.write_text(f'"""{head.rstrip()}\n\n{text} \n"""{rest}\n# {text}\n', "utf-8")
                self.fields["sources"] = self.fields.get("sources", 0) + 2

    def _note(self, kind: str, path: Path) -> None:
        self.fields[kind] = self.fields.get(kind, 0) + 1
        self.files.add(path.relative_to(self.root).as_posix())

    def _line(self) -> str:
        """A text on one line, as most fields want it."""
        return " ".join(next(self._texts).split())

    def _table(self, kind: str, path: Path, sound: Callable[[], object]) -> None:
        """Put a text into each string of words in a TOML or JSON file that takes one."""
        pieces = _STRING.split(path.read_text(encoding="utf-8"))
        for at in range(1, len(pieces), 2):
            old = pieces[at]
            if " " not in old.strip():
                continue
            for kept in (old, ""):
                pieces[at] = kept + json.dumps(f" {self._line()}")[1:-1]
                path.write_text('"'.join(pieces), encoding="utf-8")
                if _holds(sound):
                    self._note(kind, path)
                    break
                pieces[at] = old
        path.write_text('"'.join(pieces), encoding="utf-8")

    def _front(
        self, kind: str, path: Path, content: Any, write: Callable[[], object],
        sound: Callable[[], object],
    ) -> None:  # fmt: skip
        """Put a text into each field of words of a page's front matter that takes one."""
        for holder, key in list(_leaves(content)):
            old = holder[key]
            for kept in (f"{old} ", ""):
                holder[key] = kept + self._line()
                write()
                if _holds(sound):
                    self._note(kind, path)
                    break
                holder[key] = old
        write()

    def _page(self, kind: str, path: Path, sound: Callable[[], object]) -> None:
        post = frontmatter.loads(path.read_text(encoding="utf-8"))

        def write() -> None:
            path.write_text(frontmatter.dumps(post), encoding="utf-8")

        self._front(kind, path, post.metadata, write, sound)
        parts = re.split(r"(?m)^(?=#{1,4} )", post.content)
        titles = _titles(sound())
        for at, part in enumerate(parts):
            if not part.strip():
                continue  # Before the title nothing stands.
            text = next(self._texts).replace("# title", "title")
            if "](" in text and kind.startswith("docs/"):
                continue  # The build refuses a page that links to what is not there.
            before = parts[at]
            parts[at] = f"{part.rstrip()}\n\n{text}\n\n"
            post.content = "".join(parts)
            write()
            if _holds(sound) and _titles(sound()) == titles:  # A fence may swallow the rest.
                self._note(f"{kind} body", path)
            else:
                parts[at] = before
        post.content = "".join(parts)
        write()


def _titles(document: Any) -> list[str]:
    return [section.title for section in getattr(document, "sections", ())]


def _holds(sound: Callable[..., object], *arguments: object) -> bool:
    try:
        sound(*arguments)
    except (HyperMlaError, ValueError):
        return False
    return True


def _leaves(value: Any, words: bool = True) -> Iterator[tuple[Any, Any]]:
    """Every field of text; of several words, where those of one name something else."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(items):
        if isinstance(item, dict | list):
            yield from _leaves(item, words)
        elif isinstance(item, str) and (" " in item.strip() or not words):
            yield value, key
