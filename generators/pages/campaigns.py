"""Makes a page per committed campaign: its iterations, targets, failures and their evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from generators.model.site import Site
from generators.write.page import Page
from generators.write.text import fold, meta, sections, us
from mla_var3.campaign.memory import Entry, Memory
from mla_var3.campaign.workspace import SETTINGS, Settings, read_settings
from mla_var3.errors import HyperMlaError
from mla_var3.evidence.compare import said
from mla_var3.knowledge.evidence import Link
from mla_var3.tables import cell, code, table

FOLDER, INDEX = "campaigns", "campaigns/index.md"
#: Verdicts that stand under "What failed".
_WHY = {"wrong": "it is wrong", "slower": "it is slower", "as fast": "it is as fast"}


def _roots(site: Site) -> list[Path]:
    return sorted(path.parent for path in (site.root / FOLDER).glob(f"*/{SETTINGS}"))


def _page(root: Path) -> str:
    return f"{FOLDER}/{root.name}.md"


def places(site: Site) -> Mapping[str, str]:
    """The folders of the campaigns."""
    found = {f"{FOLDER}/{root.name}": _page(root) for root in _roots(site)}
    return {FOLDER: INDEX, **found} if found else {}


def pages(site: Site) -> list[Page]:
    """An index and a page per campaign; none in a checkout without any."""
    roots = _roots(site)
    return [_index(site, roots), *(_campaign(site, root) for root in roots)] if roots else []


def _index(site: Site, roots: Sequence[Path]) -> Page:
    link = site.link(INDEX)
    rows = []
    for root in roots:
        settings, entries = read_settings(root), _entries(root)
        own = [entry for entry in entries if entry.origin != "history"]
        failed = sum(entry.failed for entry in own)
        rows.append([
            f"[{cell(root.name)}]({link(f'{FOLDER}/{root.name}')})", cell(_subject(settings)),
            code(settings.device), str(len(own)), str(failed), _reached(settings, own),
        ])  # fmt: skip
    head = ("Campaign", "Of", "Device", "Versions", "Failed", "Target")
    text = (
        "A campaign works one kernel to its ceiling: each version has a plan that names the record "
        "which asked for it, goes through gates, and is remembered, failures too."
    )
    parts = ("# Published campaigns", text, table(head, rows, right=("Versions", "Failed")))
    return Page(INDEX, sections(meta(description="Campaigns, iteration by iteration"), *parts),
                nav=("Results", "Campaigns"))  # fmt: skip


def _entries(root: Path) -> list[Entry]:
    return Memory(root).entries(masked=True)


def _subject(settings: Settings) -> str:
    if settings.design is not None:
        return f"{settings.design} from {settings.start}"
    return Path(settings.source or "").name


def _reached(settings: Settings, entries: Sequence[Entry]) -> str:
    """How near the fastest version is to the target."""
    target = settings.target_us
    if target is None:
        return "no ceiling follows"
    timed = [entry.performance.median_us for entry in entries if entry.performance]
    if not timed:
        return f"{us(target)}; nothing was timed"
    best = min(timed)
    if best <= target:
        return f"{us(target)}, reached with {us(best)}"
    return f"{us(target)}; the fastest takes {us(best)}, {best / target:.2f}x of it"


def _campaign(site: Site, root: Path) -> Page:
    path = _page(root)
    link, settings, entries = site.link(path), read_settings(root), _entries(root)
    own = [entry for entry in entries if entry.origin != "history"]
    known = [entry for entry in entries if entry.origin == "history"]
    title = f"Campaign {root.name}"
    problem = ", ".join(f"{name}={value}" for name, value in settings.problem.items())
    facts = [
        ["Kernel", cell(_subject(settings))],
        ["Problem", cell(problem or "its own sizes")],
        ["Device", f"[{cell(settings.device)}]({_linked(link, settings.device)})"],
        ["Target", cell(_reached(settings, own))],
    ]
    return Page(
        path,
        sections(
            meta(title=title, description=f"{title}: iterations, failures and evidence"),
            f"# {cell(title)}",
            table(("", ""), facts),
            "## Iterations",
            table(
                ("Version", "From", "Change", "Verdict", "Time", "Against its parent"),
                [_row(entry) for entry in own], right=("Time",),
            ),
            *(part for entry in own for part in _told(site, entry, link)),
            "## What failed" if any(entry.failed for entry in own) else "",
            _failures(own),
            _known(known),
        ),
        source=f"{FOLDER}/{root.name}/README.md",
        nav=("Results", "Campaigns", root.name),
    )  # fmt: skip


def _linked(link: Link, device: str) -> str:
    return link(f"knowledge/devices/{device}.toml")


def _row(entry: Entry) -> list[str]:
    times = entry.performance
    against = ""
    if times is not None and times.parent_us is not None:
        against = said(times.parent_us, times.median_us)
    mark = " (masked)" if entry.masked else ""
    return [
        code(entry.version), code(entry.parent) if entry.parent else "", cell(_first(entry.change)),
        entry.verdict + mark, f"{times.median_us:,.2f} us" if times else "", against,
    ]  # fmt: skip


def _first(text: str) -> str:
    return text.split("\n", 1)[0]


def _told(site: Site, entry: Entry, link: Link) -> list[str]:
    """What asked for a version, what was expected of it and what it was made of."""
    correct, times = entry.correctness, entry.performance
    right = "right" if correct.status == "passed" else f"wrong: {correct.message}"
    if correct.error is not None and correct.status == "passed":
        right += f", error {correct.error:.1e} (allowed {correct.tolerance:.1e})"
    lines = [
        f"- Expected: {cell(_first(entry.hypothesis))}",
        f"- Checked: {cell(right)}",
        *(f"- Asked for by {_evidence(site, name, link)}" for name in entry.evidence),
        *([f"- Follows {_pattern(site, entry.pattern, link)}"] if entry.pattern else []),
        *([f"- Changed lines: {entry.diff.lines}"] if entry.diff.lines else []),
        *(f"- {cell(fact)}" for fact in entry.facts),
        *([f"- Timed: {cell(times.protocol)}, run {code(times.run)}"] if times else []),
        *(
            f"- Pitfall: {cell(one.pitfall.rstrip('. '))}. Mended: {cell(one.fix)}"
            for one in entry.pitfalls
        ),
    ]
    return [f"### {entry.version}", "\n".join(lines)]


def _evidence(site: Site, name: str, link: Link) -> str:
    """A record, linked where it is among the committed ones."""
    try:
        site.catalogue.record(name)
    except HyperMlaError:
        return f"{code(name)}, of the campaign's own run"
    return f"[{cell(name)}]({link(name)})" if name in site.addresses else code(name)


def _pattern(site: Site, name: str, link: Link) -> str:
    page = site.catalogue.by_id.get(name)
    return f"[{cell(name)}]({link(page.name)})" if page is not None else code(name)


def _failures(entries: Sequence[Entry]) -> str:
    rows = [
        f"- {code(entry.version)}: {_WHY.get(entry.verdict, entry.verdict)}"
        f"{': ' + cell(_first(entry.correctness.message)) if entry.correctness.message else ''}."
        for entry in entries if entry.failed
    ]  # fmt: skip
    return "\n".join(rows)


def _known(entries: Sequence[Entry]) -> str:
    """What the memory held before the campaign began."""
    if not entries:
        return ""
    rows = [
        [code(entry.version), cell(_first(entry.change)),
         "failed" if entry.failed else entry.verdict, cell("; ".join(entry.facts))]
        for entry in entries
    ]  # fmt: skip
    count = f"{len(rows)} versions, {sum(entry.failed for entry in entries)} failed"
    return fold("What was known before", count, table(("Version", "Change", "Verdict", ""), rows))
