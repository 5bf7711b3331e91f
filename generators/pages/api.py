"""Makes the reference pages of cuTile and the CuTe DSL: an index each, and a page per chapter.

Text is ours, from ``knowledge.references``; names and signatures are the installed packages'.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path

from generators.draw import layouts
from generators.model.site import Site
from generators.pages import api_compiles
from generators.write.page import Page
from generators.write.source import repo_name
from generators.write.text import cell, code, fence, meta, rebase, sections, table
from mla_var3 import inputs
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.markdown import neutralise
from mla_var3.knowledge.references import asking, cutlass_docs
from mla_var3.knowledge.references.cells import Cell
from mla_var3.knowledge.references.model import HEAD, Entry, Part, Reference, load_all
from mla_var3.knowledge.references.usage import by_name
from mla_var3.paths import relative
from mla_var3.runtime.registry import Version

#: Where the findings of the interpreter are explained.
FINDINGS = "docs/interpreter.md#findings"
#: Dtypes in their order; where an operation takes most, those that it refuses are said.
_MANY = 9
#: Characters of a call that stands in an entry.
_CALL = 100


def page_path(reference: Reference, part: Part | None = None) -> str:
    """The page of a chapter, or of the reference."""
    return f"api/{reference.key}/{part.key if part else 'index'}.md"


def places(site: Site) -> Mapping[str, str]:
    """Page of each chapter's file."""
    found = {}
    for reference in load_all(site.root):
        found[f"knowledge/references/{reference.key}"] = page_path(reference)
        found |= {part.file: page_path(reference, part) for part in reference.parts}
    return found


def pages(site: Site) -> list[Page]:
    """An index per reference and a page per chapter."""
    found = []
    for reference in load_all(site.root):
        users = by_name(reference.head, site.versions)
        found.append(_index(site, reference))
        found += [_chapter(site, reference, part, users) for part in reference.parts]
    return [*found, *converted(site)]


def converted(site: Site) -> list[Page]:
    """A page over CUTLASS's C++ documents; none where nobody converted them."""
    folder = site.root / asking.CONVERTED
    files = sorted(folder.rglob("*.md"))
    if not files:
        return []
    path = "api/cutlass/index.md"
    link = site.link(path)

    def listed(part: str) -> str:
        rows = []
        for file in files:
            name = relative(file, site.root)
            if file.is_relative_to(folder / part):
                heads = ", ".join(cell(head) for head in _headings(file)[1:9])
                title = cell(cutlass_docs.title_of(file))
                rows.append(f"- [{title}]({link(name)})" + (f": {heads}" if heads else ""))
        return "\n".join(rows)

    content = sections(
        "# CUTLASS: C++ documents",
        "Converted on this machine from the pinned commit, as plain text; they are no part of a "
        "published site.",
        "## Guides", listed("docs"), "## Headers", listed("api"),
    )  # fmt: skip
    return [Page(path, content, None, ("Reference", "CUTLASS C++ documents"))]


def _headings(file: Path) -> list[str]:
    text = re.sub(r"```.*?```", "", inputs.read_text(file), flags=re.DOTALL)
    return [re.sub(r"[`*]", "", head).strip() for head in re.findall(r"^#+ (.+)$", text, re.M)]


def nav(reference: Reference) -> tuple[str, ...]:
    """Place of a reference in the navigation."""
    return ("Reference", f"{reference.head.title} API")


def _index(site: Site, reference: Reference) -> Page:
    head, installed = reference.head, reference.installed
    path = page_path(reference)
    link = site.link(path)
    file = f"knowledge/references/{reference.key}/{HEAD}"
    rows = [
        [f"[{cell(part.chapter.title)}]({part.key}.md)",
         ", ".join(f"[{code(entry.key)}]({part.key}.md#{anchor(entry.key)})"
                   for entry in part.entries)]
        for part in reference.parts
    ]  # fmt: skip
    words = [f"{head.title} {kind}" for kind in ("reference", "documentation", "operations")]
    content = sections(
        meta(found_by=[*words, *head.found_by, head.package]),
        f"# {cell(head.title)} API",
        rebase(neutralise(head.first), file, link),
        neutralise(head.lead),
        f"{len(installed.names)} names of {code(head.package)} {installed.version}. A check holds "
        "them to the installed package: a name that an update adds, drops or changes fails it. "
        f'From a shell: `nox -s knowledge -- api "TMA store"`.',
        table(["Chapter", "Names"], rows),
        _missing(reference),
    )
    return Page(path, content, file, nav(reference))


def _missing(reference: Reference) -> str:
    missing = reference.installed.missing
    if not missing:
        return ""
    named = ", ".join(code(name) for name in missing)
    return (
        f"CUTLASS's examples also write {named}: these need a package that is not installed here "
        "(`cutlass.jax` needs JAX), or are of another release."
    )


def _chapter(
    site: Site, reference: Reference, part: Part, users: Mapping[str, list[Version]]
) -> Page:
    chapter, path = part.chapter, page_path(reference, part)
    link = site.link(path)

    def prose(text: str) -> str:
        return rebase(neutralise(text), part.file, link)

    enums = [enum for entry in part.entries for enum in _choices(reference, entry)]
    shown = [cell_ for cell_ in part.cells if any(e.cell == cell_ for e in part.entries)]
    content = sections(
        meta(found_by=[*_found_by(part), reference.head.title], sections=_sought(part)),
        f"# {cell(reference.head.title)}: {cell(chapter.title)}",
        prose(chapter.intro),
        "## Worked examples { #worked }" if chapter.worked else "",
        prose(chapter.worked),
        *(layouts.FIGURES[name]() for name in chapter.figures),
        f"## Names{' { #names .on-top }' if chapter.on_top else ''}",
        _values(enums, link),
        *(_entry(site, reference, entry, users.get(entry.key, []), link, prose, shown)
          for entry in part.entries),
        "## Snippets" if shown else "",
        _runs(shown, link),
        *(_snippet(part, found, number) for number, found in enumerate(shown, 1)),
    )  # fmt: skip
    return Page(path, content, part.file, (*nav(reference), chapter.title))


def _found_by(part: Part) -> list[str]:
    """What readers say who look for the chapter, or for a name that its top tells of."""
    top = [entry for entry in part.entries if entry.on_top]
    return [*part.chapter.found_by, *(said for e in top for said in (e.key, *e.sought))]


def _sought(part: Part) -> dict[str, list[str]]:
    """What readers say who look for a name that has a place of its own, by its anchor."""
    own = [entry for entry in part.entries if entry.sought and not entry.on_top]
    return {anchor(entry.key): list(entry.sought) for entry in own}


def anchor(key: str) -> str:
    """Anchor of a name; Markdown takes two underscores for emphasis."""
    return key.replace("__", "")


def _entry(site: Site, reference: Reference, entry: Entry, users: list[Version], link: Link,
           prose: Callable[[str], str], shown: list[Cell]) -> str:  # fmt: skip
    name = entry.name
    # Parameters hold stars and bars, which only plain code keeps as they are.
    signature = f"`{entry.key.rpartition('.')[2]}{name.signature}`" if name.signature else ""
    facts = [
        *_facts(reference, entry, link),
        *_taken(reference, entry, link),
        *_where(entry, users, link, shown),
        *([f"as in {reference.head.package} {reference.installed.version}"] if signature else ()),
    ]
    return sections(
        f"### {code(entry.key)} {{ #{anchor(entry.key)}{' .on-top' if entry.on_top else ''} }}",
        signature,
        _literals(entry),
        prose(entry.says),
        f"For example `{called}`." if (called := _called(entry)) else "",
        _detail(reference, entry, link, prose),
        prose(entry.note) if entry.note else "",
        api_compiles.of_list(entry.compiled, site.root, link) if entry.compiled else "",
        _members(entry),
        " · ".join(facts),
    )


def _detail(reference: Reference, entry: Entry, link: Link, prose: Callable[[str], str]) -> str:
    """Arguments, result, what if left out, and successor of a name, a line each."""
    detail = entry.detail
    lines = [f"- {code(argument)}: {prose(said)}" for argument, said in detail.args.items()]
    if detail.gives:
        lines.append(f"- **Gives** {prose(detail.gives)}")
    if detail.left_out:
        lines.append(f"- **Left out:** {prose(detail.left_out)}")
    if detail.instead:
        (successor,) = (each for each in reference.entries() if each.key == detail.instead)
        lines.append(f"- **Deprecated:** take [{code(successor.key)}]({_place(successor, link)})")
    return "\n".join(lines)


def _called(entry: Entry) -> str:
    """A call of a name in its snippet, on one line; empty where it has none that is short."""
    if entry.cell is None or entry.name.kind == "enum":
        return ""
    before, _, last = entry.key.rpartition(".")
    top, of_object = before.partition(".")[0], before.rpartition(".")[2][:1].isupper()
    for node in ast.walk(ast.parse(entry.cell.code)):
        if not isinstance(node, ast.Call):
            continue
        outer, _, name = ast.unparse(node.func).rpartition(".")
        of_module = not outer or f".{before}".endswith(f".{outer}")
        suits = outer.partition(".")[0] not in ("", top) if of_object else of_module
        if name == last and suits:
            called = " ".join(ast.unparse(node).split())
            return called if len(called) <= _CALL and "`" not in called else ""
    return ""


def _members(entry: Entry) -> str:
    members = entry.name.members
    if not members:
        return ""
    named = ", ".join(code(member) for member in members)
    if entry.name.kind == "enum" or len(named) < 300:
        return f"Members: {named}."
    return (
        f'<details markdown="1"><summary>{len(members)} methods and properties</summary>\n\n'
        f"{named}\n\n</details>"
    )


def _facts(reference: Reference, entry: Entry, link: Link) -> Iterator[str]:
    name = entry.name
    if name.dtypes:
        yield f"takes {_dtypes(reference, name.dtypes)}"
    if name.lowers:
        yield "becomes " + ", ".join(code(opcode) for opcode in name.lowers)
    found = [kind for opcode in name.lowers for kind in reference.head.checks.get(opcode, ())]
    if found:
        kinds = ", ".join(code(kind) for kind in dict.fromkeys(found))
        yield f"the interpreter [reports]({link(FINDINGS)}) {kinds}"


def _choices(reference: Reference, entry: Entry) -> list[Entry]:
    """The enums whose members the parameters of a name take, nearest of that name."""
    found = []
    defaults = re.findall(r"=(\w+)\.\w+", entry.name.signature)
    annotated = [word for _, words in _parameters(entry) for word in words]
    for called in dict.fromkeys([*defaults, *annotated]):
        alike = [
            other
            for other in reference.entries()
            if other.name.kind == "enum" and other.key.rpartition(".")[2] == called
        ]
        if alike:
            found.append(max(alike, key=lambda other: _near(other.key, entry.key)))
    return found


def _parameters(entry: Entry) -> Iterator[tuple[str, list[str]]]:
    """Parameters whose annotation says what they take, with its values and enums."""
    for choice in entry.name.choices:
        name, _, taken = choice.partition(": ")
        yield name, taken.split(", ")


def _literals(entry: Entry) -> str:
    """What parameters take that are words or numbers, a parameter each."""
    told = [
        f"{code(name)} is {' or '.join(code(word) for word in words)}"
        for name, words in _parameters(entry)
        if words[0][:1] == '"' or words[0].lstrip("-").isdigit()
    ]
    return f"{'; '.join(told)}." if told else ""


def _near(one: str, other: str) -> int:
    """How many modules two names have in common, from the first on."""
    pairs = zip(one.split("."), other.split("."), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _place(entry: Entry, link: Link) -> str:
    return f"{link(entry.file)}#{anchor(entry.key)}"


def _values(enums: list[Entry], link: Link) -> str:
    """The members of every enum that a signature of the chapter names, once."""
    lines = [
        f"- [{code(enum.key)}]({_place(enum, link)}): "
        f"{', '.join(code(member) for member in enum.name.members)}"
        for enum in {enum.key: enum for enum in enums}.values()
    ]
    return sections("**Values that signatures below name:**", "\n".join(lines)) if lines else ""


def _taken(reference: Reference, entry: Entry, link: Link) -> Iterator[str]:
    named = [f"[{code(enum.key)}]({_place(enum, link)})" for enum in _choices(reference, entry)]
    if named:
        yield f"choose from {', '.join(named)}"


def _dtypes(reference: Reference, taken: tuple[str, ...]) -> str:
    every = {d: None for entry in reference.entries() for d in entry.name.dtypes}
    refused = [dtype for dtype in every if dtype not in taken]
    if not refused:
        return "every dtype"
    if len(taken) > _MANY:
        return f"every dtype but {', '.join(refused)}"
    return ", ".join(taken)


def _where(entry: Entry, users: list[Version], link: Link, shown: list[Cell]) -> Iterator[str]:
    if entry.cell in shown:
        number = shown.index(entry.cell) + 1
        yield (
            f"[snippet {number}](#snippet-{number}), run without a GPU by `{_run(entry.cell.file)}`"
        )
    if entry.name.examples:
        files = "file" if entry.name.examples == 1 else "files"
        yield f"in {entry.name.examples} {files} of CUTLASS's examples"
    if users:
        yield f"used by {_designs(users, link)}"


def _designs(users: list[Version], link: Link) -> str:
    """Versions by design, each design a link."""
    grouped: dict[str, list[Version]] = {}
    for version in users:
        grouped.setdefault(version.design_key, []).append(version)
    told = []
    for key, versions in sorted(grouped.items(), key=lambda item: (-len(item[1]), item[0])):
        page = link(repo_name(versions[0].path.parents[1]))
        names = [version.version for version in versions]
        said = names[0] if len(names) == 1 else f"{len(names)} versions"
        told.append(f"[{cell(key)}]({page}) ({said})")
    return ", ".join(told[:4]) + (f" and {len(told) - 4} more" if len(told) > 4 else "")


def _run(file: str) -> str:
    """How a snippet's file is run; those of Blackwell do not compile for the usual arch."""
    arch = "--arch=sm_100 " if file.startswith("examples/blackwell/") else ""
    return f"nox -s run -- {arch}{file}"


def _runs(shown: list[Cell], link: Link) -> str:
    files = list(dict.fromkeys(found.file for found in shown))
    commands = "; ".join(f"[`{_run(file)}`]({link(file)})" for file in files)
    return f"Each runs without a GPU, and a test runs them: {commands}." if files else ""


def _snippet(part: Part, found: Cell, number: int) -> str:
    names = [entry.key for entry in part.entries if entry.cell == found]
    shown = ", ".join(code(name) for name in names[:6])
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return sections(
        f"### Snippet {number} {{ #snippet-{number} }}",
        f"{shown}{more}",
        fence(found.code, "python", title=f"{found.file}:{found.line}"),
    )
