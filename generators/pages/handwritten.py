"""Makes site pages of CONTRIBUTING.md and the Markdown in docs/ and its folders of ``SECTIONS``.

Returns their text with links turned to the site's addresses. Other folders of docs/, such as learn
and glossary, are not read here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from generators.model.site import Site
from generators.pages import told
from generators.write.page import Page
from generators.write.text import meta, rebase, sections
from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.pages import parse_markdown, sections_of
from mla_var3.paths import relative

#: Place in the navigation of the pages of each folder of docs/.
SECTIONS = {
    ".": "Reference", "serving": "Reference", "messages": "Messages",
    "contributing": "Contributing",
}  # fmt: skip
#: Other words by which the search finds a file that the repository shows without front matter.
FOUND_BY: Mapping[str, tuple[str, ...]] = {
    "CONTRIBUTING.md": (
        "contribute a kernel", "submit a kernel", "submit a new kernel version",
        "hand in a version", "how do I get it in", "give a kernel away",
        "upstream a kernel", "open a pull request",
        "my variant is faster", "my kernel beats yours", "I have a faster kernel",
        "merge my kernel", "new kernel version", "license of contributions", "sign-off",
        "contributor license", "contribute code", "contribute a split-KV variant",
        "contribute a faster kernel", "contribute a variant",
    ),
}  # fmt: skip

#: The same of its section on errors.
WRONG = (
    "report an error on a page", "report a wrong page", "a page is wrong", "correct a page",
    "report a mistake", "a number on a page is wrong", "typo", "erratum", "open an issue",
    "something is wrong on the site", "how do I get it corrected", "whom do I tell",
)  # fmt: skip


def _files(site: Site) -> Iterator[tuple[str, str]]:
    """Path of each file from the top of the checkout, and that of its page."""
    yield "CONTRIBUTING.md", "contributing/index.md"
    docs = site.root / "docs"
    for file in sorted(docs.rglob("*.md")):
        path = relative(file, docs)
        if PurePosixPath(path).parent.as_posix() in SECTIONS:
            yield f"docs/{path}", path


def places(site: Site) -> Mapping[str, str]:
    """The files, and the readme, whose place the home page takes."""
    return {"README.md": "index.md", **dict(_files(site))}


def pages(site: Site) -> list[Page]:
    """The pages, their links turned to where the site has the files."""
    found = []
    for name, path in _files(site):
        text = (site.root / name).read_text(encoding="utf-8")
        section = SECTIONS[PurePosixPath(path).parent.as_posix()]
        nav = (section,) if path.endswith("index.md") else (section, _title(name, text))
        link = site.link(path)
        content = told.filled(site, name, rebase(text, name, link), link)
        if name in FOUND_BY:
            content = sections(
                meta(found_by=list(FOUND_BY[name]), sections={"a-page-is-wrong": list(WRONG)}),
                content,
            )
        found.append(Page(path, content, source=name, nav=nav))
    return found


def _title(name: str, text: str) -> str:
    for section in sections_of(text, 1, parse_markdown(text)):
        if section.level == 1:
            return section.title
    raise KnowledgeError(f"{name} has no heading of level 1")
