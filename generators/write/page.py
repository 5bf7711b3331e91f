"""``Page``: a file of the site as generators return it; and the writer of pages to a folder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mla_var3.errors import KnowledgeError
from mla_var3.paths import write_atomic


@dataclass(frozen=True)
class Page:
    """One file of the site.

    Attributes:
        path: Below the docs root, POSIX, for example ``kernels/flash_mla/v1.md``.
        content: Markdown, the bytes of an asset, or the file to copy.
        source: The file to edit to change the page, below the checkout; None when there is none.
        nav: Titles from the top of the navigation down to this page; empty when it is not in it.
        listed: Whether it has to be in the navigation, as pages have.
    """

    path: str
    content: str | bytes | Path
    source: str | None = None
    nav: tuple[str, ...] = ()
    listed: bool = True

    def __post_init__(self) -> None:
        pure = PurePosixPath(self.path)
        if pure.is_absolute() or ".." in pure.parts:
            raise KnowledgeError(f"page path {self.path!r} leaves the site")

    @property
    def data(self) -> bytes:
        """What to write."""
        if isinstance(self.content, Path):
            return self.content.read_bytes()
        return self.content.encode() if isinstance(self.content, str) else self.content


def unique(pages: Iterable[Page]) -> list[Page]:
    """The pages as a list; two of one path are an error."""
    seen: dict[str, Page] = {}
    for page in pages:
        if page.path in seen:
            raise KnowledgeError(f"two pages claim {page.path}")
        seen[page.path] = page
    return list(seen.values())


def write_folder(pages: Iterable[Page], folder: Path) -> int:
    """Write ``pages`` as plain files below ``folder``; returns how many."""
    found = unique(pages)
    for page in found:
        write_atomic(folder / page.path, page.data)
    return len(found)
