"""Makes MLA's interactive figure: FLOPs, bytes and times of four forms of the same attention.

The cost functions of the library are called with numbers for the values in the page, and with
symbols for the expressions that ``docs/assets/js/mla-figure.js`` evaluates as sliders move.
"""

from __future__ import annotations

import functools
import html
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from generators.draw import shapes
from generators.draw.shapes import BLUE, EDGE, ORANGE, PURPLE, QUIET, path, text
from generators.mla import advisor
from generators.model.site import Site
from mla_var3 import devices
from mla_var3.devices import Ceilings, Power
from mla_var3.roofline import Prediction, predict
from mla_var3.workloads import Cost, mla
from mla_var3.workloads.mla import regimes

#: The GPU whose rates and records the figure shows.
DEVICE = "nvidia-h200-sxm"
#: Sizes that sliders change: label, value at first, and the values to choose from.
SLIDERS: Mapping[str, tuple[str, int, tuple[int, ...]]] = {
    "s": ("query tokens", 16, tuple(2**i for i in range(10))),
    "t": ("keys per sequence", 4096, tuple(2**i for i in range(9, 18))),
    "n": ("decompressed or shared", 1024, (0, *(2**i for i in range(6, 18)))),
    "h": ("heads", 128, (16, 32, 64, 128)),
    "b": ("sequences", 32, tuple(2**i for i in range(8))),
}
S_VALUES = SLIDERS["s"][2]
#: Chart: width, height, left and bottom margin, and the decades of microseconds that it spans.
WIDTH, HEIGHT, LEFT, BOTTOM, DECADES = 460, 250, 60, 36, (0.0, 6.0)


@dataclass(frozen=True)
class Form:
    """A way to compute the attention.

    Attributes:
        key: Name in the page.
        title: Its title.
        note: What it keeps, in a sentence.
        color: Colour of its curve.
        kernel: The kernel of the analysis whose records are its points; None without any.
        cost: Work by b, h, s, t, n and the widths d, k, p, w.
    """

    key: str
    title: str
    note: str
    color: str
    kernel: regimes.Kernel | None
    cost: Callable[..., Cost]


FORMS = (
    Form("latent", "Latent", "One short vector per token, shared by all heads.", BLUE,
         "flash_mla", lambda b, h, s, t, n, d, k, p, w: mla.flash_mla_cost(b, h, s, t, k, p, w)),
    Form("decompressed", "Decompressed", "Keys and values of every head for every token.",
         ORANGE, "flash_attention",
         lambda b, h, s, t, n, d, k, p, w: mla.flash_attention_cost(b, h, s, t, d, p, w)),
    Form("mixed", "Mixed", "Old tokens latent, the newest n decompressed.", PURPLE,
         "mla_var6_plus",
         lambda b, h, s, t, n, d, k, p, w: mla.mixed_cost(b, h, s, t, n, d, k, p, w)),
    Form("shared", "Shared prefix", "The first n tokens decompressed once for all sequences.",
         "var(--series-5)", None,
         lambda b, h, s, t, n, d, k, p, w: (
             mla.flash_mla_cost(b, h, s, t - n, k, p, w) + mla.prefix_cost(b, h, s, n, d, p, w))),
)  # fmt: skip


def _widths() -> dict[str, int]:
    shape = regimes.Shape()
    return {"d": shape.d, "k": shape.k, "p": shape.p, "w": shape.w}


def first_sizes() -> dict[str, int]:
    """Sizes that the page shows before a slider moves."""
    return {name: value for name, (_, value, _) in SLIDERS.items()}


def work(form: Form, **sizes: int) -> Prediction:
    """FLOPs, bytes and the times at the device's attained rates and power."""
    found = form.cost(**sizes, **_widths())
    return predict(found.flops, found.bytes, regimes.ceilings_of(DEVICE))


@functools.cache
def formulas() -> dict[str, dict[str, str]]:
    """FLOPs and bytes of each form as JavaScript, from the cost functions themselves."""
    import sympy

    symbols = dict(zip("bhstn", sympy.symbols("b h s t n", positive=True), strict=True))
    found = {}
    for form in FORMS:
        cost = form.cost(**symbols, **_widths())
        parts = {"flops": cost.flops, "bytes": cost.bytes}
        found[form.key] = {name: sympy.jscode(sympy.expand(part)) for name, part in parts.items()}
    return found


def points(site: Site) -> list[dict[str, Any]]:
    """The fastest that was measured on the device, by form and sizes."""
    keys = {form.kernel: form.key for form in FORMS if form.kernel}
    return [
        {"form": keys[answer["cache"]], "version": best["version"], "us": best["us"],
         **{axis: answer[axis] for axis in advisor.AXES}}
        for answer in advisor.answers(site)
        if answer["device"] == DEVICE and answer["cache"] in keys
        for best in answer["found"][:1]
    ]  # fmt: skip


def figure(site: Site) -> str:
    """The figure as HTML, whole without a script."""
    rates, measured = regimes.ceilings_of(DEVICE), points(site)
    spec = {
        "formulas": formulas(),
        "rates": {"tflops": rates.tflops, "gbps": rates.gbps},
        "sliders": {name: values for name, (_, _, values) in SLIDERS.items()},
        "chart": {"width": WIDTH, "height": HEIGHT, "left": LEFT, "bottom": BOTTOM,
                  "decades": DECADES, "s": S_VALUES},
        "points": measured,
    }  # fmt: skip
    if (power := rates.power) is not None:
        spec["power"] = {"us": regimes.power_us(rates), "watts": power.watts,
                         "static": power.static, "tflops": power.tflops,
                         "flop": power.joules_per_flop,
                         "byte": power.joules_per_byte}  # fmt: skip
    sizes = first_sizes()
    cards = "".join(_card(form, sizes) for form in FORMS)
    sliders = "".join(_slider(name) for name in SLIDERS)
    name = html.escape(devices.load(DEVICE).name)
    return (
        f'<figure class="mla-figure" data-spec="{html.escape(json.dumps(spec))}">'
        f'<div class="mla-figure__sliders" hidden>{sliders}</div>'
        f'<div class="mla-figure__cards">{cards}</div>'
        f'<p class="mla-figure__message" role="status">{message(sizes)}</p>'
        f"{_chart(measured, sizes)}"
        f"<figcaption>Lines: reference times, the longest of a form's, at {rates.tflops:g} TFLOP/s "
        f"and {rates.gbps:g} GB/s as attained on an {name}. Marks: the fastest measured of each "
        f"form at these sizes; the mixed one chose its own n. {_said(rates)}</figcaption></figure>"
    )


def _said(rates: Ceilings) -> str:
    """Where joules come from, in sentences."""
    if rates.power is None:
        return "Joules are left out: nobody measured them on this device."
    power: Power = rates.power
    return (
        f"Power: the time that {power.watts:g} W allow back to back. Joules: {power.static:.0f} W "
        f"for as long as it runs, {power.joules_per_flop * 1e12:.3g} pJ per FLOP at full clock, "
        f"less by the square of a lower one, and {power.joules_per_byte * 1e12:.3g} pJ per DRAM "
        "byte, no more than the board may draw; their source and their error stand on the device's "
        "page."
    )


def message(sizes: Mapping[str, int]) -> str:
    """Which form has the shortest time, as a sentence."""
    times = {form.title.lower(): _time(form, sizes) for form in FORMS[:3]}
    best = min(times, key=lambda title: times[title])
    others = ", ".join(
        f"{t / times[best]:.1f}x {name}" for name, t in times.items() if name != best
    )
    return (
        f"At s = {sizes['s']} the {best} form has the shortest reference time, "
        f"{_us(times[best])}: {others} by the same rates."
    )


def _time(form: Form, sizes: Mapping[str, int]) -> float:
    return work(form, **sizes).time_us


def _us(us: float) -> str:
    return f"{_digits(us, 3)} us" if us < 1000 else f"{_digits(us / 1000, 3)} ms"


def _digits(value: float, count: int) -> str:
    """A number with so many significant digits, never in powers of ten."""
    return f"{float(f'{value:.{count}g}'):.12g}"


def _joules(joules: float) -> str:
    return f"{_digits(joules, 3)} J" if joules >= 1 else f"{_digits(joules * 1000, 3)} mJ"


def _card(form: Form, sizes: Mapping[str, int]) -> str:
    found = work(form, **sizes)
    rows = {
        "memory": _us(found.memory_us),
        "tensor": _us(found.compute_us),
        "bytes": f"{_digits(found.bytes / 1e6, 4)} MB",
        "flops": f"{_digits(found.flops / 1e9, 4)} GFLOP",
    }
    if (power := found.rates.power) is not None:
        joules = power.joules(found.flops, found.bytes, found.time_us)
        rows |= {"power": _us(found.power_us), "joules": _joules(joules)}
    listed = "".join(
        f'<dt>{name}</dt><dd data-field="{name}">{rows[name]}</dd>'
        for name in ("memory", "tensor", "power", "bytes", "flops", "joules")
        if name in rows
    )
    time = f'<p class="mla-figure__time" data-field="time">{_us(found.time_us)}</p>'
    head = f"<strong>{form.title}</strong><p>{form.note}</p>{time}"
    style = f'style="--form:{form.color}"'
    return f'<section data-form="{form.key}" {style}>{head}<dl>{listed}</dl></section>'


def _slider(name: str) -> str:
    label, value, values = SLIDERS[name]
    return (
        f"<label>{name}, {label} <output>{value}</output>"
        f'<input type="range" name="{name}" min="0" max="{len(values) - 1}" step="1" '
        f'value="{values.index(value)}" aria-valuetext="{value}"></label>'
    )


def place(s: float, us: float) -> tuple[float, float]:
    """Where a time at s query tokens stands in the chart."""
    low, high = DECADES
    x = LEFT + (WIDTH - LEFT - 120) * math.log2(s) / math.log2(S_VALUES[-1])
    share = (math.log10(us) - low) / (high - low)
    return x, HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 10) * min(max(share, 0), 1)


def _chart(measured: Iterable[Mapping[str, Any]], sizes: Mapping[str, int]) -> str:
    parts = list(_axes())
    for form in FORMS:
        curve = [place(s, _time(form, {**sizes, "s": s})) for s in S_VALUES]
        line = path(curve, form.color, dashed=form.key in ("mixed", "shared"))
        parts.append(line.replace("<path ", f'<path data-curve="{form.key}" ', 1))
    shown = [
        point for point in measured if all(point[axis] == sizes[axis] for axis in ("b", "h", "t"))
    ]
    colors = {form.key: form.color for form in FORMS}
    marks = "".join(_mark(point, colors[point["form"]]) for point in shown)
    parts.append(f'<g data-marks="">{marks}</g>')
    titles = ", ".join(form.title for form in FORMS)
    says = f"time over query tokens, 1 to {S_VALUES[-1]}, of {titles}; {message(sizes)}"
    return shapes.svg(WIDTH, HEIGHT, parts, "MLA in one figure", says)


def _axes() -> Iterator[str]:
    low, high = map(int, DECADES)
    for decade in range(low, high + 1, 2):
        y = place(1, 10**decade)[1]
        yield path([(LEFT, y), (WIDTH - 120, y)], EDGE)
        yield text(LEFT - 6, y + 4, _us(10**decade), anchor="end", fill=QUIET, size=11)
    for s in S_VALUES[::2]:
        yield text(place(s, 1)[0], HEIGHT - 14, f"s={s}", anchor="middle", fill=QUIET, size=11)
    for row, form in enumerate(FORMS):
        yield text(WIDTH - 110, 24 + 20 * row, form.title, fill=form.color, bold=True)


def _mark(point: Mapping[str, Any], color: str) -> str:
    x, y = place(point["s"], point["us"])
    words = html.escape(f"{point['version']}, s={point['s']}: {_us(point['us'])}")
    title = f"<title>{words}</title>"
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" style="fill:{color}">{title}</circle>'
