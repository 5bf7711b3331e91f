"""Makes the diagnosis pages: from a symptom, by arch, to metrics that confirm it and patterns."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping

from generators.model import compare, targets
from generators.model.columns import language_title
from generators.model.run import Run
from generators.model.site import Site, relative
from generators.pages.catalogue import METRICS_PAGE, label
from generators.pages.kernels import run_version
from generators.pages.machine import heading
from generators.pages.proofs import checked
from generators.write import figures
from generators.write.page import Page
from generators.write.text import cell, fold, meta, rendered, sections, table
from mla_var3 import inputs
from mla_var3.errors import KnowledgeError
from mla_var3.evidence.compare import times
from mla_var3.knowledge import history, metrics, symptoms
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.history import Gain
from mla_var3.knowledge.pages import Document
from mla_var3.knowledge.schema import SHARED, Kind, PairEvidence, RecordEvidence
from mla_var3.knowledge.symptoms import SYMPTOMS, Symptom

INDEX = "diagnosis/index.md"
FOUND_BY = (
    "why is my kernel slow", "what is wrong with my kernel", "slow kernel",
    "where to start optimizing", "kernel slower than expected", "find the bottleneck",
    "how to make a kernel faster", "diagnose a kernel", "performance problem of a kernel",
    "what should I try first", "which metric shows the fault", "from symptom to remedy",
    "kernel reaches 30 percent of peak", "checklist for a slow kernel",
)  # fmt: skip
#: How to confirm a symptom, by the mode whose run states it.
CONFIRM: Mapping[str, str] = {
    "static": "nox -s profile -- DESIGN VERSION --prof_type=static --arch=sm_90,sm_100,sm_120",
    "ncu": "nox -s profile -- DESIGN VERSION --prof_type=ncu",
    "event": "nox -s profile -- DESIGN VERSION --prof_type=event",
    "disabled": "nox -s check -- DESIGN VERSION",
}
_VERB: Mapping[Kind, str] = {"optimization": "Do:", "anti-pattern": "Look for:"}
_NEEDS: Mapping[str, str] = {
    "static": "It compiles and needs no GPU.",
    "ncu": "It needs a GPU and Nsight Compute.",
    "event": "It needs a GPU.",
    "disabled": "It runs small problems in the interpreter or the emulator, without a GPU.",
}


def page_of(symptom: Symptom) -> str:
    """Path of a symptom's page."""
    return f"diagnosis/{symptom.key}.md"


def places(site: Site) -> Mapping[str, str]:
    """The pages, as ``diagnosis`` and ``diagnosis/<symptom>``; this file stands for the first."""
    own = "generators/pages/diagnosis.py"
    return {
        **{"diagnosis": INDEX, own: INDEX},
        **{f"{base}{s.key}": page_of(s) for s in SYMPTOMS for base in ("diagnosis/", f"{own}#")},
    }


def pages(site: Site) -> list[Page]:
    """The symptoms, then a page each; none without a remedy."""
    gains = history.gains(site.catalogue)
    shown = [symptom for symptom in SYMPTOMS if symptom.remedies(site.catalogue)]
    return [_index(site, shown), *(_page(site, symptom, gains) for symptom in shown)]


def doors(site: Site, link: Link) -> str:
    """The symptoms as a list of links."""
    lines = []
    for symptom in SYMPTOMS:
        found = symptom.remedies(site.catalogue)
        if found:
            lines.append(f"- [{cell(symptom.title)}]({link(f'diagnosis/{symptom.key}')})")
    return "\n".join(lines)


def messages(link: Link) -> str:
    """Where to look when something is said, or nothing is any more."""
    hangs, said = link("docs/messages/kernel-hangs.md"), link("docs/messages/index.md")
    return (
        f"A kernel hangs, or ends with an error? [A kernel hangs]({hangs}) names the causes; "
        f"[messages]({said}) lists what compilers, GPUs and our checks say."
    )


def first_door(site: Site, link: Link) -> str:
    """The symptom that most kernels begin with, by arch; empty without a remedy."""
    symptom = SYMPTOMS[0]
    if not symptom.remedies(site.catalogue):
        return ""
    return f"*{cell(symptom.title)}* on {_on_each_arch(symptom, link)}; "


def _on_each_arch(symptom: Symptom, link: Link) -> str:
    """Links to what to try, by arch."""
    page = link(f"diagnosis/{symptom.key}")
    return " · ".join(f"[{arch}]({page}#{arch})" for arch in symptoms.archs())


def _index(site: Site, shown: list[Symptom]) -> Page:
    link = site.link(INDEX)
    rows = [
        [
            f"[{cell(symptom.title)}]({link(f'diagnosis/{symptom.key}')})",
            cell(symptom.meaning),
            ", ".join(f"`{name}`" for name in symptom.metrics),
            _on_each_arch(symptom, link),
        ]
        for symptom in shown
    ]
    return Page(
        INDEX,
        sections(
            meta(
                title="Diagnosis",
                description="From a symptom to what confirms and mends it",
                found_by=list(FOUND_BY),
            ),
            "# What is wrong with my kernel?",
            "Start from what you see. Each page gives a command that tells whether your kernel "
            "has the fault. Then it lists what to try; what gained most in our measurements on "
            "your architecture comes first.",
            table(["What you see", "What happens", "What shows it", "What to try on"], rows),
            messages(link),
            "`DESIGN VERSION`, and `D V` on other pages, is a kernel of this site, such as "
            "`flash_mla v2`; the path of an adopted file may stand in their place. Have a record "
            "already? `nox -s knowledge -- match RECORD` names the faults and "
            f"remedies of that record. [Adopt]({link('docs/adopt.md')}) a file of your own, Triton "
            "included, and both commands take it in place of a design. Looking for a metric? "
            f"[Metrics to patterns]({relative(INDEX, METRICS_PAGE)}) lists each.",
        ),
        nav=("Diagnosis",),
    )


def _page(site: Site, symptom: Symptom, gains: dict[str, list[Gain]]) -> Page:
    path = page_of(symptom)
    link, found = site.link(path), symptom.remedies(site.catalogue)
    ordered: dict[str, Document] = {}
    told: set[str] = set()
    parts = []
    before: tuple[str, list[Document]] | None = None
    for tried in _alike(site, symptom, found, gains, link):
        held, names = tried.held, _together(tried.archs)
        ordered |= {page.pattern.id: page for page in held}
        parts.append(_on_archs(site, tried))
        if before:
            parts.append(_differs(names, *before, held))
        before = before or (names, held)
        if away := [page for page in found if page not in held]:
            parts.append(_does_not_hold(names, away, link))
        for page in held[:1]:  # What to do first stands where a reader of this arch arrives.
            if page.pattern.id not in told:
                parts.append(_remedy(site, page, link))
                told.add(page.pattern.id)
    others = [page for page in ordered.values() if page.pattern.id not in told]
    return Page(
        path,
        sections(
            meta(title=symptom.title, description=symptom.meaning, found_by=list(symptom.words)),
            f"# {cell(symptom.title)}",
            cell(symptom.meaning),
            _more(site, symptom, link),
            _tricks(site, symptom, link),
            _cases(symptom, ordered),
            f"What to try on {_on_each_arch(symptom, link)}.",
            "## Confirm it",
            _confirm(site, symptom, link),
            *parts,
            "## The other remedies" if others else "",
            *(_remedy(site, page, link, folded=True) for page in others),
        ),
        nav=("Diagnosis", symptom.title),
    )


def _more(site: Site, symptom: Symptom, link: Link) -> str:
    """The page that tells the causes of a symptom apart, where there is one."""
    if not symptom.more:
        return ""
    page = f"docs/messages/{symptom.more}.md"
    title = heading(inputs.read_text(site.root / page))
    return f"Which of its causes it is, and `nox -s run` for a script: [{title}]({link(page)})."


def _tricks(site: Site, symptom: Symptom, link: Link) -> str:
    """Where all that was tried stands in one table, with what did not pay."""
    if symptom.tricks is None:
        return ""
    name, title = symptom.tricks
    found = [page for page in site.catalogue.patterns if page.pattern.id == name]
    anchor = title.lower().replace(" ", "-")
    return "".join(
        f"What each trick gained, and where it did not pay: [{title}]({link(page.name)}#{anchor})."
        for page in found
    )


def _cases(symptom: Symptom, shown: Mapping[str, Document]) -> str:
    """Which remedy is for which case, where the page has several."""
    lines = [
        f"- {cell(words)}: [{cell(shown[name].pattern.title)}](#{name})."
        for words, name in symptom.cases
        if name in shown
    ]
    return sections("**Which case is yours?**", "\n".join(lines)).rstrip() if lines else ""


# -- is it so --------------------------------------------------------------------------------------


def _confirm(site: Site, symptom: Symptom, link: Link) -> str:
    looked = "\n".join(
        f"- `{name}`: {cell(metrics.metric(name).description)}" for name in symptom.metrics
    )
    worst = [run for arch in symptoms.archs() if (run := _worst(site, symptom, arch))]
    commands = [CONFIRM[symptom.mode]]
    if worst:
        commands.append("nox -s knowledge -- match RECORD")
    shown = "\n".join(f"$ {command}" for command in commands)
    seen = "\n".join(f"- {_seen(site, symptom, run, link)}" for run in worst)
    return sections(
        f"```console\n{shown}\n```",
        _NEEDS[symptom.mode] + (" The second command ranks the remedies for a record, such as "
                                f"`{worst[-1].name}`." if worst else ""),
        f"Look at:\n\n{looked}",
        f"Our records that show the fault most:\n\n{seen}" if seen else "",
    )  # fmt: skip


def _worst(site: Site, symptom: Symptom, arch: str) -> Run | None:
    """The record of an arch that shows a symptom most, where more of its metric is worse."""
    metric = metrics.metric(symptom.metrics[0])
    if metric.better != "lower":
        return None
    found = [
        (value, run.name, run)
        for run in site.runs
        if run.record.arch == arch
        and (value := compare.worst(run, metric.name))
        and not _allowed(run, metric.name, value)
    ]
    return max(found)[2] if found else None


def _allowed(run: Run, metric: str, value: float) -> bool:
    """Whether an error lies within what its own check allows, so that it is no fault."""
    check = checked(run)
    return metric == "max_relative_error" and check is not None and value <= (check.tolerance or 0)


def _seen(site: Site, symptom: Symptom, run: Run, link: Link) -> str:
    value = compare.worst(run, symptom.metrics[0])
    assert value is not None
    said = figures.amount(symptom.metrics[0], value)
    where = targets.target_name(run.record.target)
    return (
        f"{run_version(site, run, link)} on {cell(where)} at {cell(site.problem_text(run))}: "
        f"{figures.record_link(run, link, said)}"
    )


# -- what to try -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Tried:
    """What to try, as it stands on every one of some archs.

    Attributes:
        archs: The archs.
        held: Patterns that hold there, best first.
        table: The remedies as rows.
    """

    archs: list[str]
    held: list[Document]
    table: str


def _alike(
    site: Site, symptom: Symptom, found: list[Document], gains: dict[str, list[Gain]], link: Link
) -> list[_Tried]:  # fmt: skip
    """The archs by what to try on them: those of which the same is said are one."""
    made: list[_Tried] = []
    for arch in symptoms.archs():
        held = symptoms.ranked(found, arch, site.catalogue, gains)
        table = _rows(site, symptom, arch, held, gains, link)
        same = next((one for one in made if (one.held, one.table) == (held, table)), None)
        if same:
            same.archs.append(arch)
        else:
            made.append(_Tried([arch], held, table))
    return made


def _together(names: list[str]) -> str:
    """Names in a sentence."""
    return ", ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"


def _on_archs(site: Site, tried: _Tried) -> str:
    first, *others = tried.archs
    untimed = [arch for arch in tried.archs if arch not in _timed(site)]
    anchors = "".join(f'<span id="{arch}"></span>' for arch in others)
    return sections(
        f"## What to try on {_together(tried.archs)} {{ #{first} }}",
        anchors,
        f"Nobody timed a kernel on {_together(untimed)}. The table says how a remedy changed what "
        "the compiler reports there; the gain in time is not known."
        if untimed
        else "",
        tried.table or "No pattern of the catalogue is known to hold here.",
    )


def _differs(names: str, first: str, before: list[Document], held: list[Document]) -> str:
    """How the list of archs differs from the first one."""
    gone = [cell(page.pattern.title) for page in before if page not in held]
    new = [cell(page.pattern.title) for page in held if page not in before]
    said = [
        f"without *{'*, *'.join(gone)}*" if gone else "",
        f"with *{'*, *'.join(new)}* besides" if new else "",
    ]
    told = ", ".join(filter(None, said))
    order = "the same remedies, in another order or otherwise measured"
    return f"Against {first}: {told or order}."


def _rows(
    site: Site, symptom: Symptom, arch: str, held: list[Document], gains: dict[str, list[Gain]],
    link: Link,
) -> str:  # fmt: skip
    changes: dict[str, list[Document]] = {}
    for page in held:  # Pages of one change share its measurements, and are one row.
        brought = "<br>".join(_brought(site, symptom, page, arch, gains, link))
        changes.setdefault(brought or f"not measured here {page.pattern.id}", []).append(page)
    rows = [
        [
            str(number),
            "<br>".join(
                f"{_VERB[page.pattern.kind]} [{cell(page.pattern.title)}](#{page.pattern.id})"
                for page in pages
            ),
            ", ".join(dict.fromkeys(_for(page) for page in pages)),
            "not measured here" if brought.startswith("not measured") else brought,
            pages[0].pattern.impact,
        ]
        for number, (brought, pages) in enumerate(changes.items(), 1)
    ]
    head = ["", "What to try", "For", "What it brought", "Impact"]
    return table(head, rows)


def _for(page: Document) -> str:
    """The language whose kernels a pattern serves."""
    scope = page.pattern.scope
    return "any language" if scope == SHARED else cell(language_title(scope))


def _brought(
    site: Site, symptom: Symptom, page: Document, arch: str, gains: dict[str, list[Gain]],
    link: Link,
) -> Iterator[str]:  # fmt: skip
    """What a page was measured to bring on an arch: times of this project, then its evidence."""
    if arch in _timed(site) and (found := symptoms.factors(page, arch, site.catalogue, gains)):
        ends = " to ".join(dict.fromkeys(times(factor) for factor in (found[0], found[-1])))
        timed = f"{len(found)} cases" if len(found) > 1 else "one case"
        yield f"{ends} the speed in {timed} timed"
    pairs = symptoms.pairs_on(page, arch, site.catalogue)
    single = symptoms.records_on(page, arch, site.catalogue)
    for item in page.pattern.evidence:  # As the page tells it: its own case first.
        if isinstance(item, PairEvidence) and item in pairs:
            if said := symptoms.change(item, symptom.metrics, site.catalogue):
                note = f": {cell(item.note)}" if item.note else ""
                yield f"[{cell(said)}]({link(item.after)}){note}"
        elif (
            isinstance(item, RecordEvidence)
            and item in single
            and (said := symptoms.shown(item, symptom.metrics, site.catalogue))
        ):
            yield f"[{cell(said)}]({link(item.record)})"


def _timed(site: Site) -> set[str | None]:
    """The archs on which anything was timed."""
    return {run.record.arch for run in site.runs if run.is_timed}


def _does_not_hold(arch: str, away: list[Document], link: Link) -> str:
    names = ", ".join(f"[{cell(label(page.pattern))}]({link(page.name)})" for page in away)
    return f"These patterns fail on {arch}, or nobody saw them work there: {names}."


def _remedy(site: Site, page: Document, link: Link, *, folded: bool = False) -> str:
    """A remedy in full: what to do, with its code, and when it fails.

    Args:
        site: What generators read.
        page: The pattern.
        link: Addresses as seen from the page.
        folded: Whether all but when to apply it waits to be opened.
    """
    pattern = page.pattern
    rest = sections(
        _part(site, page, "Implementation", link),
        "**When it fails**",
        _part(site, page, "Pitfalls", link),
    )
    return sections(
        f"### {cell(pattern.title)} {{ #{pattern.id} }}",
        f"Where it holds: {cell(', '.join(pattern.archs))}." if pattern.archs else "",
        _part(site, page, "When to apply", link),
        fold("How", "with code, and when it fails", rest) if folded else rest,
        f"[The whole pattern, with its mechanism and evidence]({link(page.name)}).",
    )


_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def _part(site: Site, page: Document, title: str, link: Link) -> str:
    """One section of a pattern, rendered; headings inside it become bold words."""
    text = next((section.text for section in page.sections if section.title == title), None)
    if text is None:
        raise KnowledgeError(f"{page.name} has no section {title!r}")
    shown = rendered(dataclasses.replace(page, body=text), site.catalogue, link)
    shown = shown.replace("](#", f"]({link(page.name)}#")  # Its other sections stand there.
    # A line of code that starts with a mark is a comment.
    pieces = re.split(r"(^```.*?^```)", shown, flags=re.MULTILINE | re.DOTALL)
    return "".join(
        piece if piece.startswith("```") else _HEADING.sub(r"**\1**", piece) for piece in pieces
    )
