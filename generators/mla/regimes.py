"""Makes the pages of MLA's regime analysis: winner maps and figures per device, and calculator."""

from __future__ import annotations

import functools
import html
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from generators.draw import shapes
from generators.draw.shapes import BLUE, ORANGE, PURPLE, QUIET, rect, text
from generators.mla import advisor, balance, cards, decode, peers
from generators.mla.design_choice import COSTS, OTHERS, SOURCE
from generators.model.site import Site
from generators.pages.kernels import run_version
from generators.write import figures
from generators.write.devlogs import found_by
from generators.write.page import Page
from generators.write.text import cell, meta, rendered, sections, table
from mla_var3 import devices
from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.pages import Document
from mla_var3.workloads.mla import regimes
from mla_var3.workloads.mla.regimes import Cell, Kernel, RegimeMap

PAGE, DERIVED = "mla/index.md", "mla/cost-models.md"
#: Context lengths at which crossings are shown.
CONTEXTS = (1024, 4096, 16384, 131072)
#: Widths of a map on a page and on a phone, its room for labels, and the height of a row.
WIDE, NARROW, _LEFT, _ROW = 680, 350, 32, 32

_COLORS: Mapping[Kernel, str] = {
    "flash_mla": BLUE,
    "flash_attention": ORANGE,
    "mla_var6_plus": PURPLE,
}
_WORDS: Mapping[Kernel, str] = {
    "flash_mla": "latent",
    "flash_attention": "decompr.",
    "mla_var6_plus": "mixed",
}


def device_page(key: str) -> str:
    """Path of a device's regime page."""
    return f"mla/{key}.md"


def _documents(site: Site) -> dict[str, Document]:
    """The texts of the analysis, by their file."""
    return {text.name: text for text in site.catalogue.texts if text.name in (SOURCE, COSTS)}


def places(site: Site) -> dict[str, str]:
    """Pages of the analysis."""
    found = _documents(site)
    derived = {COSTS: DERIVED} if COSTS in found else {}
    if SOURCE not in found:
        return {}
    return {SOURCE: PAGE, OTHERS: peers.PATH, cards.SOURCE: cards.PATH, **derived, **_decode(site)}


def _decode(site: Site) -> dict[str, str]:
    """The page on decode kernels, where a record says anything."""
    return {decode.SOURCE: decode.PATH} if decode.best_known(site) else {}


def pages(site: Site) -> list[Page]:
    """The analysis, what it rests on, and a page for each device whose ceilings are known."""
    found = _documents(site)
    if SOURCE not in found:
        return []
    return [
        analysis_page(site, found[SOURCE]),
        *filter(None, [decode.page(site)]),
        cards.page(site),
        peers.page(site, SOURCE),
        *([costs_page(site, found[COSTS])] if COSTS in found else []),
        *(map_page(site, d.key) for d in _usable(site)),
    ]


#: What readers call what the analysis answers.
FOUND_BY = (
    "FlashMLA comparison", "n crossover", "best n", "which kernel to use", "advisor",
    "when decompressed attention is cheaper than latent attention",
    "which attention design for which sizes", "MLA advisor", "winner map of MLA",
    "latent or decompressed",
)  # fmt: skip
#: The same by section, where it stands far below the page's top.
SECTIONS = {
    "many-shapes-from-a-script": [
        "ask the advisor from a script", "kernel advisor script", "advisor API",
        "advisor on the command line", "many shapes at once", "spreadsheet of shapes",
        "recommendations for 300 shapes", "CSV of shapes", "which kernel for a list of sizes",
        "advisor without clicking", "automate the advisor", "table of shapes",
    ],
}  # fmt: skip


def _usable(site: Site) -> list[Any]:
    known = {device.key for device in regimes.usable_devices()}
    return [device for device in site.devices if device.key in known]


def analysis_page(site: Site, document: Document) -> Page:
    """``knowledge/workloads/mla.md`` with its maps drawn and its calculator at work."""
    if document.meta is None:
        raise KnowledgeError(f"{document.name} is not a readable text: run knowledge lint")
    link, known = site.link(PAGE), advisor.measured(site)

    def override(name: str, arguments: tuple[str, ...]) -> str | None:
        if name == "analysis" and arguments[:2] == ("mla", "map"):
            return f"{map_figure(regimes.regime_map(arguments[2]))}\n\n{as_table(*arguments[1:])}"
        if name == "analysis" and arguments == ("mla", "calculator"):
            return f"{calculator(known)}\n\n{advisor.pages(site, known, link)}"
        if name == "analysis" and arguments == ("mla", "devices"):
            return _linked(regimes.figure("devices"), site)
        return None

    body, named = rendered(document, site.catalogue, link, override), found_by(document)
    content = sections(
        meta(
            found_by=[*FOUND_BY, *named, *advisor.problems_answered(known["answers"])],
            sections=SECTIONS,
        ),
        f"# {cell(document.meta.title)}",
        peers.lead(site, link(OTHERS)),
        body,
    )
    return Page(PAGE, content, SOURCE, ("MLA",))


def _linked(rows: str, site: Site) -> str:
    """A table of devices with each name leading to its map."""
    for device in _usable(site):
        name = cell(device.name)
        rows = rows.replace(f"| {name} |", f"| [{name}]({device.key}.md) |")
    return rows


def costs_page(site: Site, document: Document) -> Page:
    """``knowledge/workloads/mla-costs.md``."""
    if document.meta is None:
        raise KnowledgeError(f"{document.name} is not a readable text: run knowledge lint")
    body = rendered(document, site.catalogue, site.link(DERIVED))
    title, names = cell(document.meta.title), meta(found_by=list(found_by(document)))
    return Page(DERIVED, sections(names, f"# {title}", body), COSTS, ("MLA", "Cost models"))


def map_page(site: Site, key: str) -> Page:
    """Map, best n, crossings and shared prefixes of one device."""
    path = device_page(key)
    device = site.cards[key]
    ceilings = regimes.ceilings_of(key)
    link = site.link(path)
    file = link(f"knowledge/devices/{key}.toml")
    measured = any(run.record.target == key for run in site.runs)
    content = sections(
        meta(found_by=[f"MLA on {_model(key)}", f"regime map of {_model(key)}"]),
        f"# MLA on {cell(device.name)}",
        _take(site, device, link),
        balance.short(site, device, link),
        f"Computed from the cost models and rates of [this device]({file}): "
        f"{figures.reference_rates(ceilings)}; the two rates meet at "
        f"{regimes.figure('ridge', key)}. "
        "The times are reference times at these rates, with perfect overlap; they are not bounds. "
        "[The analysis](index.md) says how, and what the times leave out; no time here was measured"
        + (f": the [results]({link(f'results/{key}')}) are." if measured else "."),
        "## Regime map",
        "Fastest design over query tokens and context, for "
        f"{regimes.Shape().b} sequences and {regimes.Shape().h} heads; of designs within "
        f'{regimes.TIE:.0%} the simplest. Below "mixed" stands its best n.',
        map_figure(regimes.regime_map(key)),
        as_table("map", key),
        "## Best n",
        "Context of 4096.",
        regimes.figure("best-n", key),
        "## Crossings",
        "Smallest number of query tokens s from which the statement holds.",
        crossings(key),
        "## Shared prefix",
        "Latent time over the time with a decompressed prefix, for a prefix of 4096 of 8192 "
        "tokens.",
        regimes.figure("shared-prefix", key),
    )
    return Page(path, content, f"knowledge/devices/{key}.toml", ("MLA", device.name))


def _take(site: Site, device: Any, link: Link) -> str:
    """Which kernel to take on a device for which one of the same machine code was timed."""
    found = decode.best_known(site)
    if found is None or decode.SOURCE not in site.addresses:
        return ""
    timed = {mine.record.target for mine, _ in found[1]}
    if device.sm not in {other.sm for other in site.devices if other.key in timed}:
        return ""
    return (
        f"**To serve decode here, take {run_version(site, found[1][0][0], link)}**: "
        f"[its times and conditions]({link(decode.SOURCE)}). What follows says which way to "
        "compute pays, not which kernel."
    )


def _model(key: str) -> str:
    """A device without its maker and its slot: ``H20``, ``RTX 5090``."""
    words = key.partition("-")[2].removesuffix("-sxm")
    return words.replace("-", " ").upper()


def crossings(key: str) -> str:
    """From how many query tokens on which design wins, over the context."""
    statements = {
        "`mla_var6_plus` beats `flash_mla`": ("crossing", key, "mla_var6_plus", "flash_mla"),
        "`flash_attention` beats `flash_mla`": ("crossing", key, "flash_attention", "flash_mla"),
        "`flash_attention` is the one to use": ("wins-from", key, "flash_attention"),
        "`flash_mla` is bound by arithmetic": ("compute-bound", key, "flash_mla"),
    }
    rows = [
        [statement, *(regimes.figure(*arguments, str(t)) for t in CONTEXTS)]
        for statement, arguments in statements.items()
    ]
    return table(["Statement", *(f"t = {t}" for t in CONTEXTS)], rows)


def as_table(*arguments: str) -> str:
    """A computed table, folded away below the drawing that shows the same."""
    return (
        '<details markdown="1">\n<summary>The same as a table</summary>\n\n'
        f"{regimes.figure(*arguments)}\n\n</details>"
    )


# -- the drawing ---------------------------------------------------------------------------------


def map_figure(found: RegimeMap) -> str:
    """A regime map as an inline drawing."""
    shown = shapes.responsive(lambda width: _draw(found, width), WIDE, NARROW)
    return shapes.figure(shown, kind="chart")


def _described(found: RegimeMap) -> str:
    return " ".join(f"s={s}: {', '.join(_runs(found, s))}." for s in found.s_values)


def _runs(found: RegimeMap, s: int) -> Iterator[str]:
    """Winners along a row, each from the first context on that it wins."""
    row = ((t, _WORDS[found.cell(s, t).winner]) for t in found.t_values)
    for words, group in itertools.groupby(row, key=lambda item: item[1]):
        yield f"{words} from t={next(group)[0]}"


def _draw(found: RegimeMap, width: float) -> str:
    across = (width - _LEFT) / len(found.t_values)
    parts, size = [], 12 if width == WIDE else 8
    for y, s in enumerate(reversed(found.s_values)):
        top = y * _ROW
        parts.append(text(_LEFT - 6, top + 20, str(s), anchor="end", fill=QUIET, size=11))
        for x, t in enumerate(found.t_values):
            point = found.cell(s, t)
            left, color = _LEFT + x * across, _COLORS[point.winner]
            parts.append(rect(round(left, 1), top, round(across - 1, 1), _ROW - 1, color, "", 0.25))
            for row, words in enumerate(_words(point)):
                middle = round(left + across / 2, 1)
                parts.append(text(middle, top + 14 + 12 * row, words, anchor="middle", size=size))
    bottom = _ROW * len(found.s_values)
    for x, t in enumerate(found.t_values):
        middle = round(_LEFT + (x + 0.5) * across, 1)
        parts.append(text(middle, bottom + 14, str(t), anchor="middle", fill=QUIET, size=size))
    parts.append(text(width, bottom + 30, "context t, keys per sequence", anchor="end", size=11))
    parts.append(text(0, bottom + 30, "rows: query tokens s", size=11))
    title = f"Regime map of {found.device}"
    return shapes.svg(width, bottom + 36, parts, title, _described(found))


def _words(point: Cell) -> list[str]:
    words = [_WORDS[point.winner]]
    return [*words, str(point.n)] if point.winner == "mla_var6_plus" else words


# -- the calculator ------------------------------------------------------------------------------

#: Inputs that are shown at once; the others are folded away.
_FIRST = ("b", "h", "s", "t")
#: Types that the advisor asks about; both have the rates of 16 bits.
DTYPES = {"bf16": "bf16", "fp16": "fp16"}


@functools.cache
def calculator_spec() -> dict[str, Any]:
    """What the calculator computes from; see ``regimes.calculator_spec``."""
    return regimes.calculator_spec()


def calculator(measured: Mapping[str, Any] | None = None) -> str:
    """The advisor's form, which ``docs/assets/js/calculator.js`` brings to life.

    Args:
        measured: What records say; see ``advisor.measured``. Without it the model answers
            alone.
    """
    spec = calculator_spec()
    start = (measured or {}).get("start", {})
    inputs = {item["name"]: _input(item, start.get(item["name"])) for item in spec["inputs"]}
    first = "\n".join(inputs[name] for name in _FIRST)
    rest = "\n".join(text for name, text in inputs.items() if name not in _FIRST)
    options = "".join(map(_option, spec["devices"]))
    # Not in a script element: instant navigation would run it, whatever its type.
    data = html.escape(json.dumps(spec))
    records = html.escape(json.dumps(measured)) if measured else ""
    return f"""<div class="calculator" data-spec="{data}" data-measured="{records}">
<form aria-label="Advisor">
<p><label>device <select name="device">{options}</select></label></p>
{_choice("cache", "your cache holds", advisor.CACHES, start)}
{_choice("page", "a latent cache lies in", advisor.PAGES, start)}
{_choice("lengths", "its sequences have", advisor.LENGTHS, start)}
{_choice("mask", "queries of s > 1 have", advisor.MASKS, {"mask": "causal"})}
{first}
{_choice("dtype", "data type", DTYPES, start)}
<details>
<summary>Other sizes</summary>
{rest}
</details>
</form>
<div class="advice" role="status"></div>
<p class="calculator-answer">The calculator needs JavaScript; \
the formulas stand above.</p>
<table data-times hidden>
<caption>Reference times, from the cost models and the rates of the device</caption>
<thead><tr><th scope="col">Attention over</th><th scope="col">FLOPs</th><th scope="col">Bytes</th>\
<th scope="col">Time</th><th scope="col">Bound by</th></tr></thead>
<tbody></tbody>
</table>
</div>"""


def _choice(name: str, label: str, options: Mapping[Any, str], start: Mapping[str, Any]) -> str:
    """A choice; chosen is what the problem to begin with has, else the first."""
    chosen = str(start.get(name))
    shown = "".join(
        f'<option value="{html.escape(key)}"{" selected" if key == chosen else ""}>'
        f"{html.escape(text)}</option>"
        for key, text in options.items()
    )
    return f'<p><label>{label} <select name="{name}">{shown}</select></label></p>'


def _option(device: Mapping[str, Any]) -> str:
    key, name = html.escape(device["key"]), html.escape(device["name"])
    chosen = " selected" if key == devices.default_for_arch("sm_90").key else ""
    return f'<option value="{key}"{chosen}>{name}</option>'


def _input(item: Mapping[str, Any], value: int | None = None) -> str:
    """A size; its value is that of a problem that was measured, else the default."""
    name = item["name"]
    attributes = {
        "name": name,
        "value": item["default"] if value is None else value,
        "inputmode": "numeric",
        "autocomplete": "off",
        "title": item["help"],
    }
    text = " ".join(f'{key}="{html.escape(str(value))}"' for key, value in attributes.items())
    return f"<p><label>{name}, {html.escape(item['label'])} <input {text} required></label></p>"
