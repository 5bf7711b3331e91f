"""Converts CUTLASS's C++ documents to a local Markdown tree, for reading and searching.

Guides are kept as they are, those in reStructuredText go through pandoc; links out of the tree lead
to the repository. The API part has a page per header, from Doxygen's XML. The tree is made from the
pinned commit, and git ignores it.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mla_var3.errors import ToolchainError
from mla_var3.examples import fetch, pin
from mla_var3.knowledge.references import doxygen

#: Where the tree lies, below the top of the checkout.
FOLDER = "third_party/cutlass-docs"
REPORT = "report.md"
_GUIDES = Path("media/docs/cpp")
_LINK = re.compile(r"(?<!\\)\]\((?P<target>[^()\s]+?)(?:\s+\"[^\"]*\")?\)")
_TOCTREE = re.compile(
    r"^\.\. toctree::\n(?:[ \t]+:\w+:.*\n)*\n?(?P<rows>(?:[ \t]+\S.*\n?|\n)*)", re.M
)
_ROW = re.compile(r"^\s*(?P<title>.*?)\s*<(?P<file>[^<>]+)>\s*$")


@dataclass
class Report:
    """What a conversion did.

    Attributes:
        sources: Files that the documents are made from.
        guides: Guides that were written.
        headers: Headers that have a page.
        lost: Files that became nothing, each with why.
        warnings: What pandoc and Doxygen said.
        dead: Links that lead nowhere, as ``file: target``.
        seconds: How long it took.
    """

    sources: int = 0
    guides: int = 0
    headers: int = 0
    lost: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.sources} files: {self.guides} guides, {self.headers} headers, "
            f"{len(self.lost)} lost; {len(self.warnings)} warnings, {len(self.dead)} dead links; "
            f"{self.seconds:.0f} s"
        )

    def page(self, tag: str) -> str:
        """The report as Markdown."""
        parts = [f"# Report\n\nCUTLASS {tag}: {self}.\n"]
        for title, rows in (("Lost", self.lost), ("Dead links", self.dead),
                            ("Warnings", self.warnings)):  # fmt: skip
            if rows:
                parts.append(f"## {title}\n\n" + "\n".join(f"- `{row}`" for row in rows) + "\n")
        return "\n".join(parts)


def convert(root: Path, say: Callable[[str], None]) -> Report:
    """Make the tree anew; the old one stands until it is whole.

    Args:
        root: Top of the checkout.
        say: Told what is done.

    Raises:
        ToolchainError: pandoc is missing, or CUTLASS cannot be fetched.
    """
    started = time.monotonic()
    pinned, target, report = pin.load(root), root / FOLDER, Report()
    pandoc = find_pandoc()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".cutlass-docs-", dir=target.parent) as temporary:
        source, made = Path(temporary) / "source", Path(temporary) / "tree"
        say(f"bringing CUTLASS {pinned.tag}")
        paths = fetch.bring(pinned, pinned.documents, source, Path(temporary) / "git")
        report.sources = sum(file.is_file() for file in source.rglob("*"))
        say("converting guides")
        _guides(source, made, pandoc, report)
        for file in made.rglob("*.md"):
            _write(file, readdressed(file, made, paths, pinned))
        say("reading headers with Doxygen, which takes minutes")
        pages, said, lost = doxygen.pages(source, Path(temporary) / "xml")
        report.warnings += dict.fromkeys(said)
        report.lost += lost
        report.headers = len(pages)
        for path, text in pages.items():
            _write(made / "api" / f"{path}.md", text)
        _write(made / "index.md", _index(made, pinned.tag))
        report.dead = list(dead_links(made))
        report.seconds = time.monotonic() - started
        _write(made / REPORT, report.page(pinned.tag))
        if target.exists():
            target.rename(Path(temporary) / "old")
        made.rename(target)
    return report


def find_pandoc() -> str:
    """The program pandoc: the system's, or that of the package pypandoc_binary.

    Raises:
        ToolchainError: There is none.
    """
    if found := shutil.which("pandoc"):
        return found
    try:
        import pypandoc

        return str(pypandoc.get_pandoc_path())
    except (ImportError, OSError) as error:
        raise ToolchainError(
            "converting .rst needs pandoc: install it, or `pip install pypandoc_binary`"
        ) from error


# -- guides ----------------------------------------------------------------------------------------


def _guides(source: Path, made: Path, pandoc: str, report: Report) -> None:
    for file in sorted((source / _GUIDES).rglob("*")):
        if not file.is_file():
            continue
        path = made / "docs/cpp" / file.relative_to(source / _GUIDES)
        if file.suffix == ".rst":
            text, said = _from_rst(file.read_text(encoding="utf-8"), pandoc)
            report.warnings += [f"{path.name}: {line}" for line in said]
            _write(path.with_suffix(".md"), text)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, path)
        report.guides += 1


def _from_rst(text: str, pandoc: str) -> tuple[str, list[str]]:
    """A text through pandoc, tables of contents as lists of links; and what pandoc said."""
    done = subprocess.run(
        [pandoc, "--from=rst", "--to=gfm", "--wrap=none"],
        input=_TOCTREE.sub(_as_list, text), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise ToolchainError(f"pandoc ended with {done.returncode}: {done.stderr.strip()[:200]}")
    return done.stdout, done.stderr.splitlines()


def _as_list(found: re.Match[str]) -> str:
    rows = []
    for line in found["rows"].splitlines():
        if line.strip():
            match = _ROW.match(line)
            title, file = (match["title"], match["file"]) if match else (line.strip(), line.strip())
            stem, dot, kind = file.rpartition(".")
            target = f"{stem}.md" if dot and kind in ("md", "rst") else f"{file}.md"
            rows.append(f"- `{title or target} <{target}>`__")
    return "\n".join(["", *rows, "", ""])


# -- index and links -------------------------------------------------------------------------------


def _index(made: Path, tag: str) -> str:
    """What the tree holds: guides by title, then headers by folder."""
    guides = sorted((made / "docs").rglob("*.md"))
    rows = [f"- [{title_of(file)}]({file.relative_to(made).as_posix()})" for file in guides]
    parts = [f"# CUTLASS {tag}: C++ documents", "## Guides", "\n".join(rows), "## API"]
    folders: dict[str, list[Path]] = {}
    for file in sorted((made / "api").rglob("*.md")):
        folders.setdefault(file.parent.relative_to(made / "api").as_posix(), []).append(file)
    for folder, files in folders.items():
        links = (f"[{f.stem}]({f.relative_to(made).as_posix()})" for f in files)
        parts += [f"### {folder}", ", ".join(links)]
    return "\n\n".join(parts) + "\n"


def title_of(file: Path) -> str:
    """First heading of a Markdown file, else its name."""
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("# "):
            return re.sub(r"[\[\]`*]", "", line[2:]).strip()
    return file.stem


def dead_links(made: Path) -> Iterator[str]:
    """Relative links of a tree that lead to no file, as ``file: target``."""
    for file in sorted(made.rglob("*.md")):
        text = re.sub(r"```.*?```|`[^`\n]*`", "", file.read_text("utf-8", "replace"), flags=re.S)
        for target in _targets(text):
            path = target.partition("#")[0]
            if path and not (file.parent / path).exists():
                yield f"{file.relative_to(made).as_posix()}: {target}"


def _targets(text: str) -> Iterable[str]:
    return (
        found["target"]
        for found in _LINK.finditer(text)
        if not re.match(r"[a-z][a-z0-9+.-]*:|0x|#", found["target"])
    )


def readdressed(file: Path, made: Path, paths: Collection[str], pinned: pin.Pin) -> str:
    """A guide with links to other files of the repository turned to where these can be read.

    Args:
        file: The guide.
        made: The tree.
        paths: Files of the repository.
        pinned: Its commit.
    """
    here = (_GUIDES / file.relative_to(made / "docs/cpp")).parent.as_posix()

    def turned(found: re.Match[str]) -> str:
        target = found["target"]
        path, mark, anchor = target.partition("#")
        if re.match(r"[a-z][a-z0-9+.-]*:|0x|#", target) or (file.parent / path).is_file():
            return found.group()
        page = (file.parent / path).with_suffix(".md")
        if page.is_file() and not path.endswith(".md"):
            named = f"{path.removesuffix('.rst')}.md"
            return found.group().replace(target, f"{named}{mark}{anchor}")
        # Some guides count their own depth wrong: what is named so below the top is meant.
        for named in (
            posixpath.normpath(posixpath.join(here, path)),
            re.sub(r"^(\.\./)+", "", path),
        ):
            if kind := _kind(named.rstrip("/"), paths):
                address = f"{pinned.address}/{kind}/{pinned.commit}/{named.rstrip('/')}"
                return found.group().replace(target, f"{address}{mark}{anchor}")
        return found.group()

    return _LINK.sub(turned, file.read_text(encoding="utf-8"))


def _kind(named: str, paths: Collection[str]) -> str:
    """What GitHub calls a path of the repository; empty where it has none."""
    if named in paths:
        return "blob"
    return "tree" if any(path.startswith(f"{named}/") for path in paths) else ""


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
