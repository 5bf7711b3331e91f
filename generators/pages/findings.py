"""Makes a page per finding in a kernel of others, a report that could be sent, and their list."""

from __future__ import annotations

from collections.abc import Mapping

from generators.model.site import Site
from generators.write.page import Page
from mla_var3.emulator import findings
from mla_var3.emulator.findings import INSTALLED, LISTED, SUITE, TABLE, Finding, Shown
from mla_var3.gpuless.suites import find
from mla_var3.tables import cell, code, table

FOLDER = "results/findings"
PATH = f"{FOLDER}/index.md"
_HEAD = """\
# Findings in kernels of others

The [emulator](../../emulator.md) ran these kernels unmodified, at the smallest input that shows
something, and again with a remedy. **None of it was seen on hardware.** A report says that nothing
orders two accesses; whether a GPU ever takes the bad order is another question.
"""


def pages(site: Site) -> list[Page]:
    """The list, and a page each; none in a checkout without the table."""
    if not all((site.root / path).is_file() for path in (LISTED, TABLE)):
        return []
    listed = findings.read(site.root / LISTED)
    shown = {one.finding: one for one in findings.table(site.root / TABLE).findings}
    there = [(key, one, shown[key]) for key, one in listed.items() if key in shown]
    rows = [
        (f"[{cell(one.title)}]({key}.md)", code(one.kind), one.arch, _remedied(ran))
        for key, one, ran in there
    ]
    header = ("Finding", "Kind", "For", "With the remedy")
    text = f"{_HEAD}\n{table(header, rows)}\n"
    index = Page(PATH, text, str(LISTED), ("Results", "Findings", "Overview"))
    every = [
        Page(
            f"{FOLDER}/{key}.md", _report(one, ran), str(LISTED), ("Results", "Findings", one.title)
        )
        for key, one, ran in there
    ]
    return [index, *every]


def places(site: Site) -> Mapping[str, str]:
    """The table's file."""
    return {str(TABLE): PATH} if (site.root / TABLE).is_file() else {}


def _remedied(ran: Shown) -> str:
    return "gone" if ran.mended == 0 else "not shown"


def _report(one: Finding, ran: Shown) -> str:
    versions = ", ".join(f"{cell(name)} {cell(number)}" for name, number in ran.versions.items())
    check = "passes" if ran.passes else "fails"
    steps = "\n".join(f"{i}. {step}" for i, step in enumerate(one.happens, 1))
    edits = "\n".join(
        f"- {line}\n+ {put}" for e in one.edits for line, put in _lines(e.find, e.put)
    )
    return f"""\
# {cell(one.title)}

**Not seen on hardware.** Found by executing the kernel on a CPU and checking what orders its
accesses; the example's own check {check} in the same run.

| | |
|---|---|
| Kernel | {_where(one, ran)} |
| Lines | {", ".join(dict.fromkeys(map(str, ran.lines)))} |
| Kind | `{one.kind}` |
| For | {one.arch} |
| Versions | {versions}; {cell(find(SUITE).repository)} at `{find(SUITE).commit[:9]}` |

## What happens

{steps}

**What follows.** {one.follows}

## Smallest input

{one.smallest} This shows it:

```bash
{one.command}
```

## What the emulator prints

```text
{ran.report}
```

## Remedy

{one.remedy} With this edit the report is gone:

```diff
{edits}
```
"""


def _where(one: Finding, ran: Shown) -> str:
    if one.source.startswith(INSTALLED):
        return f"`{one.source.removeprefix(INSTALLED)}` of the installed package, by `{one.script}`"
    suite = find(SUITE)
    line = f"#L{ran.lines[0]}" if ran.lines else ""
    address = f"{suite.repository}/blob/{suite.commit}/{suite.folder}/{one.source}{line}"
    return f"[{cell(one.source)}]({address})"


def _lines(old: str, new: str) -> list[tuple[str, str]]:
    return list(zip(old.splitlines(), new.splitlines(), strict=True))
