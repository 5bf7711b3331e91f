"""Converts Doxygen's XML of CUTLASS's C++ headers to Markdown, a page per header."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

#: Folders of CUTLASS that hold headers of its API.
INPUTS = ("include", "tools/util/include", "tools/library/include")
SUFFIXES = (".h", ".hpp", ".cuh", ".inl", ".cu")
_SETTINGS = """\
INPUT = {inputs}
OUTPUT_DIRECTORY = "{out}"
FULL_PATH_NAMES = YES
STRIP_FROM_PATH = "{source}"
FILE_PATTERNS = *.h *.hpp *.cuh *.inl *.cu
EXTENSION_MAPPING = cu=C++ cuh=C++ inl=C++
EXTRACT_ALL = YES
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
XML_PROGRAMLISTING = NO
SEARCH_INCLUDES = NO
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = CUTLASS_HOST_DEVICE= CUTLASS_DEVICE= CUTLASS_HOST= CUTE_HOST_DEVICE= CUTE_DEVICE= \\
    CUTE_HOST= CUTE_HOST_RTC= CUTLASS_PRAGMA_UNROLL= "__align__(x)=" __forceinline__= __CUDACC__
NUM_PROC_THREADS = 1
QUIET = YES
WARN_IF_UNDOCUMENTED = NO
WARN_IF_DOC_ERROR = YES
"""
#: Kinds of members by their heading, in order.
_KINDS = {
    "define": "Macros", "typedef": "Types", "enum": "Enums", "variable": "Variables",
    "function": "Functions",
}  # fmt: skip


def pages(source: Path, out: Path) -> tuple[dict[str, str], list[str], list[str]]:
    """A page of Markdown per header.

    Args:
        source: Top of the sources.
        out: Where Doxygen may write.

    Returns:
        Pages by path of the header, what Doxygen said, and headers without a page with why.
    """
    headers = [
        file.relative_to(source).as_posix()
        for folder in INPUTS
        for file in sorted((source / folder).rglob("*"))
        if file.suffix in SUFFIXES
    ]
    if shutil.which("doxygen") is None:
        return {}, [], [f"{path}: Doxygen is not installed" for path in headers]
    folders: dict[str, list[str]] = {}
    for path in headers:
        folders.setdefault(path.rpartition("/")[0], []).append(path)
    # Doxygen's time grows faster than what it reads, and no page needs another folder.
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 32)) as pool:
        runs = [
            pool.submit(_folder, source, paths, out / str(number))
            for number, paths in enumerate(folders.values())
        ]
        told = [run.result() for run in runs]
    made = {path: page for pages, _ in told for path, page in pages.items()}
    said = [line for _, lines in told for line in lines]
    return made, said, [f"{path}: not in Doxygen's output" for path in headers if path not in made]


def _folder(source: Path, paths: Sequence[str], out: Path) -> tuple[dict[str, str], list[str]]:
    """The pages of a folder's headers, and what Doxygen said of them."""
    said = _run(source, paths, out)
    classes: dict[str, list[ET.Element]] = {}
    files: dict[str, ET.Element] = {}
    free: dict[str, list[ET.Element]] = {}  # What a namespace holds, by header.
    for file in sorted((out / "xml").glob("*.xml")):
        for compound in ET.parse(file).getroot().iter("compounddef"):
            where = _place(compound, source)
            if compound.get("kind") == "file":
                files[where] = compound
            elif compound.get("kind") in ("class", "struct", "union"):
                classes.setdefault(where, []).append(compound)
            elif compound.get("kind") == "namespace":
                for member in compound.iter("memberdef"):
                    free.setdefault(_place(member, source), []).append(member)
    shutil.rmtree(out / "xml", ignore_errors=True)  # All together are half a gigabyte.
    pages = {
        path: _page(path, files[path], free.get(path, []), classes.get(path, []))
        for path in paths
        if path in files
    }
    return pages, said


def _run(source: Path, paths: Sequence[str], out: Path) -> list[str]:
    """Run Doxygen; returns its warnings, paths as in the repository."""
    out.mkdir(parents=True)
    inputs = " ".join(f'"{source / path}"' for path in paths)
    settings = _SETTINGS.format(source=source, inputs=inputs, out=out)
    (out / "Doxyfile").write_text(settings, encoding="utf-8")
    done = subprocess.run(
        ["doxygen", str(out / "Doxyfile")], capture_output=True, text=True, check=False
    )
    return [
        line.replace(f"{source}/", "") for line in done.stderr.splitlines() if "warning" in line
    ]


def _place(compound: ET.Element, source: Path) -> str:
    location = compound.find("location")
    found = location.get("file", "") if location is not None else ""
    return found.removeprefix(f"{source.as_posix()}/")


def _page(path: str, file: ET.Element, free: list[ET.Element], classes: list[ET.Element]) -> str:
    parts = [f"# {path}", _described(file)]
    own = [*file.iter("memberdef"), *free]
    parts += [part for kind in _KINDS for part in _members(own, kind, 2)]
    for found in sorted(classes, key=lambda c: c.findtext("compoundname", "")):
        parts += [f"## {found.get('kind')} {_code(found.findtext('compoundname', ''))}",
                  _template(found), _described(found)]  # fmt: skip
        members = list(found.iter("memberdef"))
        parts += [part for kind in _KINDS for part in _members(members, kind, 3)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _members(members: list[ET.Element], kind: str, level: int) -> Iterator[str]:
    found = [
        member
        for member in members
        if member.get("kind") == kind and member.get("prot") != "private"
    ]
    if found:
        yield f"{'#' * level} {_KINDS[kind]}"
        yield "\n".join(_member(member) for member in found)


def _member(member: ET.Element) -> str:
    name = member.findtext("name", "") or "(unnamed)"
    kind = _text(member.find("type"))
    shown = f"{kind} {name}{member.findtext('argsstring', '') or ''}".strip()
    if member.get("kind") == "enum":
        values = ", ".join(v.findtext("name", "") for v in member.iter("enumvalue"))
        shown = f"enum {name} {{ {values} }}"
    words = " ".join(_described(member).split())
    return f"- {_code(shown)}" + (f": {words}" if words else "")


def _template(compound: ET.Element) -> str:
    found = compound.find("templateparamlist")
    if found is None:
        return ""
    given = (
        f"{_text(p.find('type'))} {p.findtext('declname', '')}".strip() for p in found.iter("param")
    )
    return _code(f"template <{', '.join(given)}>")


def _described(element: ET.Element) -> str:
    """Brief and detailed description as paragraphs."""
    parts = []
    for name in ("briefdescription", "detaileddescription"):
        found = element.find(name)
        if found is not None:
            parts += [text for para in found.iter("para") if (text := _text(para))]
    return "\n\n".join(dict.fromkeys(parts))


def _text(element: ET.Element | None) -> str:
    if element is None:
        return ""
    words = " ".join("".join(element.itertext()).split())
    return re.sub(r"([*_`\[\]<>|])", r"\\\1", words) if element.tag == "para" else words


def _code(text: str) -> str:
    return f"`{' '.join(text.replace('`', '').split())}`"
