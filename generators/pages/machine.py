"""Makes the site's files for programs: llms.txt, plain copies, a JSON catalog, agent skills."""

from __future__ import annotations

import dataclasses
import functools
import html
import io
import json
import posixpath
import re
import typing
import zipfile
from collections.abc import Container, Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from generators.model import leading
from generators.model.run import Run
from generators.model.site import Site
from generators.pages import catalogue, records, skill_index
from generators.pages.kernels import compiled_for, next_version
from generators.write.page import Page
from generators.write.source import repo_name
from generators.write.text import cell, docstring, sections
from mla_var3 import devices, evidence, languages
from mla_var3.app import options
from mla_var3.errors import KnowledgeError
from mla_var3.evidence import Failed, Skipped, store
from mla_var3.knowledge import metrics
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.markdown import blank, code_regions
from mla_var3.knowledge.schema import FrontMatter
from mla_var3.runtime import costs, registry
from mla_var3.runtime.registry import Version

TEMPLATES = Path(__file__).parent / "skills"
INDEX, CATALOGUE, ARCHIVE = "skills/index.md", "catalogue.json", "skills/skills.zip"
#: Parts of the site whose pages hold tables to be explored, or nothing before mkdocs ran.
NOT_COPIED = ("results/explorer", "reference/api/", f"{records.FOLDER}/")
#: A file that is adopted as it is, for the commands of skills.
ADOPTED = "examples/adopted_matmul.py"
#: Raised when a field of catalogue.json changes its meaning or goes.
FORMAT = 2


def places(site: Site) -> dict[str, str]:
    """Page of each template, and of their folder."""
    found = {f"generators/pages/skills/{name}.md": _page(name) for name in skill_names()}
    return found | {"generators/pages/skills": INDEX}


def pages(site: Site) -> list[Page]:
    """Skill pages, the skills as an archive, and the catalogue as JSON."""
    return [
        _index(),
        *(
            Page(
                _page(name),
                skill(site, name, site.link(_page(name))),
                f"generators/pages/skills/{name}.md",
                ("Learn", "For agents", name),
            )
            for name in skill_names()
        ),
        Page(ARCHIVE, archive(site)),
        Page(CATALOGUE, json.dumps(catalogue_data(site), indent=1) + "\n"),
    ]


def _page(name: str) -> str:
    return f"skills/{name}.md"


def _index() -> Page:
    content = sections(
        "# For language models and editors",
        "Everything on this site in forms that programs read, made from the same sources as the "
        "pages:",
        f"- [llms.txt](../llms.txt) lists the pages; each has a copy as plain text beside it, and "
        "[llms-full.txt](../llms-full.txt) holds all of them.\n"
        f"- [catalogue.json](../{CATALOGUE}) holds the patterns, versions, records, devices and "
        "metrics.\n"
        "- The skills below stand in the checkout as `skills/<name>/SKILL.md`, where `npx skills "
        "add` finds them; `nox -s skills -- install` copies them to where your agent looks, and "
        "[skills.zip](skills.zip) holds the same files.",
        "## Skills: which comes first",
        skill_index.rows(),
    )
    return Page(INDEX, content, None, ("Learn", "For agents"))


# -- skills ----------------------------------------------------------------------------------------


def skill_names() -> list[str]:
    """Names of the skills."""
    return sorted(file.stem for file in TEMPLATES.glob("*.md"))


@functools.cache
def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # The output is Markdown; what is not ours goes through plain.
    )
    found.filters["plain"] = cell
    return found


def skill(site: Site, name: str, link: Link) -> str:
    """A skill as Markdown with front matter.

    Args:
        site: The site.
        name: Name of the skill.
        link: Address of a file of the checkout.

    Raises:
        UnknownNameError: The template names a pattern, device or figure that is not there.
    """
    text = _environment().get_template(f"{name}.md").render(skill_context(site, link))
    return re.sub(r"\n{3,}", "\n\n", text)


def skill_context(site: Site, link: Link) -> dict[str, Any]:
    """What templates may name."""
    start = leading.leader(site, registry.PREFERRED)
    grouped = site.designs()
    versions = grouped[start.design_key]
    patterns = [document.pattern for document in site.catalogue.patterns]
    return {
        "adopted": ADOPTED,
        "archs": compiled_for(start),
        "campaign": "my-matmul",
        "before": versions[max(versions.index(start) - 1, 0)].version,
        "design": start.design_key,
        "designs": grouped,
        "device": devices.default_for_arch("sm_90"),
        "folder": lambda name: repo_name(grouped[name][0].path.parents[1]),
        "lead": lambda language: leading.leader(site, language),
        "leaders": lambda **of: leading.leaders(site, **of),
        "link": link,
        "metrics": _metric_links(site, link),
        "modes": list(typing.get_args(options.ProfType)),
        "next": next_version(versions),
        "next_of": lambda version: next_version(grouped[version.design_key]),
        "paths": site.learning.paths,
        "pattern": lambda id_: _pattern_link(site, id_, link),
        "patterns": lambda **wanted: [
            meta
            for meta in patterns
            if all(getattr(meta, key) == value for key, value in wanted.items())
        ],
        "record": lambda version: _record_of(site, version),
        "single": _single_stage(site),
        "start": start,
        "summary": _summary,
        "triggers": _triggers,
        "version": start.version,
        **_analyses(site, link),
    }


def _analyses(site: Site, link: Link) -> dict[str, Any]:
    """What analyses of workloads add."""
    names: dict[str, Any] = {}
    for analysis in site.analyses.values():
        names |= analysis.skill_context(site, link)
    return names


def _metric_links(site: Site, link: Link) -> dict[str, list[str]]:
    uses = catalogue.metric_uses(site.catalogue.patterns)
    return {
        name: list(
            dict.fromkeys(
                _pattern_link(site, document.pattern.id, link) for document, _ in use.triggered
            )
        )
        for name, use in uses.items()
        if use.triggered
    }


def _pattern_link(site: Site, id_: str, link: Link) -> str:
    document = site.catalogue.page(id_)
    return f"[{catalogue.label(document.pattern)}]({link(document.name)})"


def _triggers(meta: FrontMatter) -> str:
    return " or ".join(f"`{trigger}`" for trigger in meta.triggers)


def _summary(version: Version) -> str:
    return cell(docstring(version.path))


def _record_of(site: Site, version: Version) -> str:
    """A record of a version; how its path is made when there is none."""
    found = [run.name for run in sorted(site.runs_of(version), key=lambda run: not run.is_timed)]
    return found[0] if found else f"results/static/sm_90/{version.folder.as_posix()}/…"


def _single_stage(site: Site) -> Version:
    """A version whose tiling fields are plain flags, among them the hints that skills set."""
    for version in reversed(site.versions):
        types = list(version.plan_class().tiling_types.values())
        hints = set(languages.find(version.language).hints)
        if len(types) == 1 and hints & {f.name for f in dataclasses.fields(types[0])}:
            return version
    raise KnowledgeError("no version has a single stage: mend the skills that name one")


def archive(site: Site) -> bytes:
    """All skills as ``<name>/SKILL.md`` in a zip, the same bytes for the same skills."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name in skill_names():
            entry = zipfile.ZipInfo(f"{name}/SKILL.md", date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            file.writestr(entry, committed_skill(site, name))
    return buffer.getvalue()


def committed_skill(site: Site, name: str) -> str:
    """A skill as it stands in the checkout: its links lead there from its own folder."""
    text = skill(site, name, lambda target: f"../../{_file_of(site, target)}")
    return _ENTITY.sub(lambda entity: html.unescape(entity.group()), text)


def _file_of(site: Site, target: str) -> str:
    """The file of the checkout that a link names; of a record that of its run."""
    if not evidence.is_address(target):
        return target
    record = site.catalogue.record(target)
    folder = PurePosixPath("results", store.folder_of(record))
    found = sorted((site.root / folder).glob(f"*-{record.run}.json"))
    return str(folder / found[0].name) if found else str(folder)


# -- the catalogue as JSON ---------------------------------------------------------------------


def catalogue_data(site: Site) -> dict[str, Any]:
    """Patterns, versions, records, devices and metrics as plain data."""
    address = site.link("catalogue.json")
    return {
        "format": FORMAT,
        "patterns": [
            document.pattern.model_dump(mode="json", by_alias=True, exclude_none=True)
            | {"source": document.name, "page": address(document.name)}
            for document in site.catalogue.patterns
        ],
        "versions": [_version_data(site, version, address) for version in site.versions],
        "records": [_record_data(run, address) for run in site.runs],
        "devices": [
            {"key": d.key, "name": d.name, "arch": d.sm,
             "page": address(f"knowledge/devices/{d.key}.toml")}
            for d in site.devices
        ],
        "metrics": [
            {"name": m.name, "unit": m.unit, "type": m.type, "origin": m.origin,
             "better": m.better, "of_a_stage": m.per_stage, "description": m.description}
            for m in metrics.catalogue().values()
        ],
    }  # fmt: skip


def _version_data(site: Site, version: Version, address: Link) -> dict[str, Any]:
    source = repo_name(version.path)
    metas = [document.pattern for document in site.catalogue.patterns]
    own = site.catalogue.version(version.key)

    def named(keys: Iterable[str]) -> bool:
        return own is not None and own in map(site.catalogue.version, keys)

    return {
        "key": version.key,
        "language": version.language,
        "layer": version.layer,
        "design": version.design,
        "version": version.version,
        "module": version.module,
        "shows": docstring(version.path),
        "source": source,
        "sources": version.sources(),
        "page": address(source),
        "uses": [meta.id for meta in metas if named(meta.used_by)],
        "violates": [meta.id for meta in metas if named(meta.violated_by)],
    }


def _record_data(run: Run, address: Link) -> dict[str, Any]:
    record, outcome = run.record, run.outcome
    found: dict[str, Any] = {
        "path": run.name,
        "address": address(f"{run.name}#json"),
        "page": address(run.name),
        "workload": record.kernel.layer,
        "language": record.kernel.language,
        "design": record.kernel.design,
        "version": record.kernel.version,
        "target": record.target,
        "mode": record.mode,
        "problem": record.problem,
        "status": record.outcome.status,
        "stale": run.stale,
    }
    if isinstance(record.outcome, Failed):
        found["error"] = record.outcome.error
    if isinstance(record.outcome, Skipped):
        found["reason"] = record.outcome.reason
    if outcome is not None and outcome.total is not None:
        found["total_us"] = outcome.total.median_us
        found["bound_fraction"] = costs.fraction(record)
    return found


# -- plain text --------------------------------------------------------------------------------


def digests(pages: Iterable[Page]) -> list[Page]:
    """llms.txt, llms-full.txt, and a plain copy beside each page that holds text.

    Args:
        pages: All pages of the other families.
    """
    chosen = {
        page.path: page
        for page in pages
        if page.path.endswith(".md") and not page.path.startswith(NOT_COPIED)
    }
    copied = [(page, plain(page, chosen)) for page in chosen.values()]
    full = "\n\n".join(f"<!-- {page.path} -->\n\n{text.strip()}" for page, text in copied) + "\n"
    copies = [Page(copy_path(page.path), text) for page, text in copied]
    return [Page("llms.txt", _listing(copied)), Page("llms-full.txt", full), *copies]


def copy_path(path: str) -> str:
    """Where the plain copy of a page is."""
    return f"{path.removesuffix('.md')}.txt"


def _listing(copied: Iterable[tuple[Page, str]]) -> str:
    groups: dict[str, list[str]] = {}
    for page, text in copied:
        if not page.nav:  # What the navigation leaves out, its path's page leads to.
            continue
        group, *_, label = [*page.nav, *page.nav[-1:]]
        title = heading(text)
        line = f"[{title}]({copy_path(page.path)})"
        if label not in title:
            line = f"[{label}]({copy_path(page.path)}): {title}"
        groups.setdefault(group, []).append(f"- {line}")
    parts = [f"## {group}\n\n" + "\n".join(lines) for group, lines in groups.items()]
    return sections(
        "# HyperMLA",
        "> Multi-head Latent Attention (MLA) GPU kernels in Python DSLs: every version with what "
        "was predicted and measured, the patterns behind them with evidence, devices, and the "
        "cost analysis that says which kernel to use where. Every number comes from a record, a "
        "device file or a cited source.",
        f"Programs may prefer [{CATALOGUE}]({CATALOGUE}); agents find skills in "
        f"[{ARCHIVE}]({ARCHIVE}).",
        *parts,
    )


def heading(text: str) -> str:
    """Title of a plain copy: its first heading."""
    found = re.search(r"^# ", text, re.MULTILINE)
    if found and found.start():  # What stands before it may open a fence around it.
        found = re.search(r"^# ", blank(text, code_regions(text)), re.MULTILINE)
    return text[found.end() :].partition("\n")[0].replace("`", "").strip() if found else ""


_FRONT = re.compile(r"\A---\n.*?\n---\n+", re.DOTALL)
_DRAWING = re.compile(r"<(svg|figure|script|form)\b.*?</\1>", re.DOTALL)
_TAG = re.compile(
    r"</?(?:div|details|summary|figure|span|p|table|thead|tbody|tr|th|td|caption)\b[^<>]*>"
)
_LINK = re.compile(r"\[([^\[\]\n]*)\]\((?![a-z]+:)([^\s()#]+)\.md(#[^\s()]*)?\)")
#: A bar keeps its entity: it would end the cell of a table.
_ENTITY = re.compile(r"&(?:#(?!124;)\d+|lt|gt|amp|quot);")


def plain(page: Page, copied: Container[str]) -> str:
    """A page without drawings, forms and the HTML around tables; code stays as it is.

    Args:
        page: A page of Markdown.
        copied: Paths of the pages that have a copy: links to them lead to it, those to a record
            to its JSON, and of links to other pages the words stay.
    """
    assert isinstance(page.content, str)  # Pages of Markdown are text.
    text = _FRONT.sub("", page.content)
    folder = posixpath.dirname(page.path)

    def readdressed(found: re.Match[str]) -> str:
        words, target, anchor = found.groups()
        if anchor and f"/{records.FOLDER}/" in f"/{target}":
            return f"[{words}]({records.raw_of(target, anchor[1:])})"
        if posixpath.normpath(posixpath.join(folder, f"{target}.md")) not in copied:
            return words
        return f"[{words}]({target}.txt{anchor or ''})"

    pieces, position = [], 0
    for start, end in [*code_regions(text), (len(text), len(text))]:
        prose = _DRAWING.sub("", text[position:start]).replace("<br>", "; ")
        pieces += [_TAG.sub(" ", prose), text[start:end]]
        position = end
    # Links may hold code, so they are looked for in the whole.
    shown = _LINK.sub(readdressed, "".join(pieces))
    shown = _ENTITY.sub(lambda entity: html.unescape(entity.group()), shown)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", shown)).strip() + "\n"
