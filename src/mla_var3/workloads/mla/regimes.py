"""Regime analysis of MLA: computes which attention kernel wins where, from costs and ceilings.

Everything here is computed from ``mla_var3.workloads.mla`` (FLOPs and bytes of each design) and
from the rates that were attained on a device; nothing is measured. Symbols as in
``mla_var3.workloads.mla.costs``. A prediction is a reference time: what the work takes at those
rates when arithmetic and memory traffic overlap perfectly and every operand is read from DRAM once,
and where joules were measured no less than what the board's power allows back to back.
A better kernel than those that attained the rates can beat it. It leaves out the final product with
Wv that all latent results need alike.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from mla_var3 import devices, tables
from mla_var3.devices.ceilings import Ceilings
from mla_var3.errors import DeviceFigureError, KnowledgeError, UnknownNameError
from mla_var3.roofline.prediction import Prediction, Side, predict
from mla_var3.workloads import Cost
from mla_var3.workloads.mla import costs, problems

Kernel = Literal["flash_mla", "flash_attention", "mla_var6_plus"]
#: Simplest first: of kernels that are equally fast the first wins.
KERNELS: tuple[Kernel, ...] = get_args(Kernel)
#: What each attends to, in words.
READS: Mapping[Kernel, str] = {
    "flash_mla": "latent vectors",
    "flash_attention": "decompressed keys and values",
    "mla_var6_plus": "latent vectors and the newest keys decompressed",
}
#: Kernels whose predictions differ by less than this share count as equally fast.
TIE = costs.TIE
DTYPE = "bf16"
S_VALUES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
T_VALUES = (512, 1024, 2048, 4096, 8192, 16384, 32768, 131072)
#: No crossing is looked for above this many query tokens.
S_LIMIT = 4096


@dataclass(frozen=True)
class Shape:
    """What stays fixed while s and t vary; defaults are DeepSeek-V3's (arXiv 2412.19437)."""

    b: int = 64
    h: int = 128
    d: int = 128
    k: int = 512
    p: int = 64
    w: int = 2


def cost(kernel: Kernel, shape: Shape, s: int, t: int, n: int = 0) -> Cost:
    """FLOPs and bytes of a design; ``n`` is the mixed design's number of decompressed tokens."""
    b, h, d, k, p, w = shape.b, shape.h, shape.d, shape.k, shape.p, shape.w
    if kernel == "flash_mla":
        return costs.flash_mla_cost(b, h, s, t, k, p, w)
    if kernel == "flash_attention":
        return costs.flash_attention_cost(b, h, s, t, d, p, w)
    return costs.mixed_cost(b, h, s, t, n, d, k, p, w)


@functools.cache  # The crossings ask for the same points again and again.
def best_n(shape: Shape, s: int, t: int, ceilings: Ceilings) -> int:
    """The mixed design's best number of decompressed tokens; see ``costs.best_new_tokens``."""
    return costs.best_new_tokens(
        shape.b, shape.h, s, t, shape.d, shape.k, shape.p, shape.w,
        ceilings, costs.MIX,
    )  # fmt: skip


@functools.cache
def prediction(kernel: Kernel, shape: Shape, s: int, t: int, ceilings: Ceilings) -> Prediction:
    """Reference time of a design, the mixed one at its best n."""
    n = best_n(shape, s, t, ceilings) if kernel == "mla_var6_plus" else 0
    work = cost(kernel, shape, s, t, n)
    return predict(work.flops, work.bytes, ceilings)


@functools.cache
def bound_us(shape: Shape, s: int, t: int, rates: Ceilings) -> float:
    """Least microseconds over the designs, the mixed one at every n, at a device's bound rates."""
    mixes = (cost("mla_var6_plus", shape, s, t, n) for n in (*range(0, t, costs.MIX), t))
    works = [cost("flash_mla", shape, s, t), cost("flash_attention", shape, s, t), *mixes]
    return min(predict(work.flops, work.bytes, rates).time_us for work in works)


@dataclass(frozen=True)
class Cell:
    """One point of a regime map.

    Attributes:
        s: Query tokens.
        t: Context length.
        winner: The simplest kernel within ``TIE`` of the fastest.
        gain: Time of the next simpler choice, the best single-space kernel, over the winner's.
        n: Best n of the mixed design.
        time_us: Reference time of each kernel.
        bound: Ceiling that binds the winner.
    """

    s: int
    t: int
    winner: Kernel
    gain: float
    n: int
    time_us: dict[Kernel, float]
    bound: Side


@dataclass(frozen=True)
class RegimeMap:
    """Winners over (s, t) for one device.

    Attributes:
        device: Device key.
        shape: Fixed sizes.
        tflops: Arithmetic ceiling.
        gbps: DRAM ceiling.
        ceiling_kind: Whether the ceilings are measured or published.
        s_values: Rows.
        t_values: Columns.
        cells: Row by row.
    """

    device: str
    shape: Shape
    tflops: float
    gbps: float
    ceiling_kind: str
    s_values: tuple[int, ...]
    t_values: tuple[int, ...]
    cells: tuple[Cell, ...]

    def cell(self, s: int, t: int) -> Cell:
        """The point at (s, t)."""
        return self.cells[self.s_values.index(s) * len(self.t_values) + self.t_values.index(t)]

    def data(self) -> dict[str, Any]:
        """The map as plain data for JSON."""
        return asdict(self)


@functools.cache
def cell(shape: Shape, s: int, t: int, ceilings: Ceilings) -> Cell:
    """Compare the kernels at one (s, t)."""
    times = {kernel: prediction(kernel, shape, s, t, ceilings) for kernel in KERNELS}
    fastest = min(found.time_us for found in times.values())
    winner = next(k for k in KERNELS if times[k].time_us <= fastest * (1 + TIE))
    single = min(times["flash_mla"].time_us, times["flash_attention"].time_us)
    return Cell(
        s, t, winner, single / times[winner].time_us, best_n(shape, s, t, ceilings),
        {kernel: found.time_us for kernel, found in times.items()}, times[winner].bound,
    )  # fmt: skip


def regime_map(
    device: str,
    shape: Shape | None = None,
    s_values: Sequence[int] = S_VALUES,
    t_values: Sequence[int] = T_VALUES,
) -> RegimeMap:
    """Which kernel wins where on a device.

    Raises:
        UnknownNameError: No such device.
        DeviceFigureError: A ceiling of it is unknown.
    """
    shape = shape or Shape()
    ceilings = ceilings_of(device)
    return RegimeMap(
        devices.load(device).key, shape, ceilings.tflops, ceilings.gbps, ceilings.source_kind,
        tuple(s_values), tuple(t_values),
        tuple(cell(shape, s, t, ceilings) for s in s_values for t in t_values),
    )  # fmt: skip


def ceilings_of(device: str) -> Ceilings:
    """A device's ceilings for the element type of the analysis."""
    return devices.load(device).ceilings(DTYPE)


def usable_devices() -> list[devices.Device]:
    """Devices whose ceilings are both known."""
    found = []
    for device in devices.all_devices():
        try:
            device.ceilings(DTYPE)
        except DeviceFigureError:
            continue  # A figure is UNKNOWN: the device cannot be placed.
        found.append(device)
    return found


# -- crossings ------------------------------------------------------------------------------------


def pair_multiply_adds(kernel: Kernel, shape: Shape | None = None) -> int:
    """Multiply-adds for one query and one key of one head."""
    shape = shape or Shape()
    one = cost(kernel, Shape(1, 1, shape.d, shape.k, shape.p, shape.w), 1, 1, 1)
    return one.flops // 2


def decompressing_flops(shape: Shape, s: int, t: int) -> int:
    """FLOPs of decompressing K and V of all t tokens and attending to them.

    K and V of one token and head are two products of a k-vector with a k x d matrix, 4kd FLOPs.
    """
    attention = cost("flash_attention", shape, s, t).flops
    return attention + 4 * shape.b * shape.h * t * shape.k * shape.d


def flops_crossing(d: int, k: int) -> float:
    """Query tokens from which decompressing first takes fewer FLOPs than staying latent.

    Latent 2bhst(2k+p) equals decompressed 2bhst(2d+p) + 4bhtkd at s = kd / (k - d); h, t and p
    cancel.

    Raises:
        KnowledgeError: k is not larger than d, so that nothing is compressed.
    """
    if k <= d:
        raise KnowledgeError(f"k={k} must exceed d={d}: otherwise nothing is compressed")
    return k * d / (k - d)


def crossing(
    faster: Kernel, slower: Kernel, shape: Shape, t: int, ceilings: Ceilings, limit: int = S_LIMIT
) -> int | None:
    """Smallest s from which ``faster`` beats ``slower`` by more than ``TIE`` up to ``limit``.

    Returns:
        The query count; None when ``slower`` is as good at ``limit``.
    """

    def wins(s: int) -> bool:
        first = prediction(faster, shape, s, t, ceilings).time_us
        return first * (1 + TIE) < prediction(slower, shape, s, t, ceilings).time_us

    return _last_start(wins, limit)


def compute_bound_from(
    kernel: Kernel, shape: Shape, t: int, ceilings: Ceilings, limit: int = S_LIMIT
) -> int | None:
    """Smallest s from which arithmetic outlasts traffic up to ``limit``; None if it does not."""

    def holds(s: int) -> bool:
        found = prediction(kernel, shape, s, t, ceilings)
        return found.compute_us >= found.memory_us

    return _last_start(holds, limit)


def latent_intensity(shape: Shape, rows: int) -> float:
    """FLOP per byte of the latent kernel with so many query rows, heads times tokens, per sequence.

    For long contexts, where queries and outputs are small beside the cache.
    """
    return rows * 2 * (2 * shape.k + shape.p) / (shape.w * (shape.k + shape.p))


def border_rows(shape: Shape, ceilings: Ceilings) -> float:
    """Query rows (heads times tokens) per sequence at which the latent kernel's times are equal.

    For long contexts, where queries and outputs are small beside the cache.
    """
    return ceilings.ridge / latent_intensity(shape, 1)


def recommended_from(
    kernel: Kernel, shape: Shape, t: int, ceilings: Ceilings, limit: int = S_LIMIT
) -> int | None:
    """Smallest s from which a kernel is the one to use up to ``limit``; None if it is not."""
    return _last_start(lambda s: cell(shape, s, t, ceilings).winner == kernel, limit)


def _last_start(holds: Callable[[int], bool], limit: int) -> int | None:
    """Start of the run of values that holds up to ``limit``, by bisection.

    All conditions here hold from some s on, since FLOPs and bytes are linear in s.
    """
    if not holds(limit):
        return None
    low, high = 0, limit  # holds(high), and not holds(low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


# -- a context that the whole batch shares -----------------------------------------------------


def shared_prefix_cost(shape: Shape, s: int, t: int, shared: int, *, decompressed: bool) -> Cost:
    """Attention over ``shared`` tokens that all sequences have in common and t - shared own ones.

    The own tokens stay latent. The shared ones are read once for the whole batch, either latent or
    decompressed beforehand (the idea of TyphoonMLA, arXiv 2509.21081).

    Raises:
        KnowledgeError: ``shared`` is not between 0 and t.
    """
    if not 0 <= shared <= t:
        raise KnowledgeError(f"shared={shared} must lie between 0 and t={t}")
    b, h, d, k, p, w = shape.b, shape.h, shape.d, shape.k, shape.p, shape.w
    own = costs.flash_mla_cost(b, h, s, t - shared, k, p, w)
    if decompressed:
        return own + costs.prefix_cost(b, h, s, shared, d, p, w)
    return own + Cost(2 * b * h * s * shared * (2 * k + p), w * shared * (k + p))


def shared_prefix_gain(shape: Shape, s: int, t: int, shared: int, ceilings: Ceilings) -> float:
    """Time with a latent shared prefix over time with a decompressed one; above 1 it pays."""
    latent, plain = (
        shared_prefix_cost(shape, s, t, shared, decompressed=choice) for choice in (False, True)
    )
    return (
        predict(latent.flops, latent.bytes, ceilings).time_us
        / predict(plain.flops, plain.bytes, ceilings).time_us
    )


# -- formulas, from the cost functions themselves ----------------------------------------------


@functools.cache
def formulas() -> Mapping[tuple[Kernel, str], Any]:
    """FLOPs and bytes of each design as sympy expressions.

    The cost functions are called with symbols, so that pages and the calculator cannot differ
    from the library.
    """
    import sympy

    b, h, s, t, n, d, k, p, w = sympy.symbols("b h s t n d k p w", positive=True)
    models: dict[Kernel, Any] = {
        "flash_mla": costs.flash_mla_cost(b, h, s, t, k, p, w),
        "flash_attention": costs.flash_attention_cost(b, h, s, t, d, p, w),
        "mla_var6_plus": costs.mixed_cost(b, h, s, t, n, d, k, p, w),
    }
    return {
        (kernel, part): getattr(model, part)
        for kernel, model in models.items()
        for part in ("flops", "bytes")
    }


@functools.cache
def balance_formula() -> Any:
    """The n at which the mixed design's compute time equals its memory time, before rounding."""
    import sympy

    n, tflops, gbps = sympy.symbols("n tflops gbps", positive=True)
    table = formulas()
    compute = table["mla_var6_plus", "flops"] / (tflops * 10**6)
    memory = table["mla_var6_plus", "bytes"] / (gbps * 10**3)
    (solution,) = sympy.solve(sympy.Eq(compute, memory), n)
    return sympy.factor(solution)


def power_us(ceilings: Ceilings) -> str:
    """Microseconds at the board's power as JavaScript in ``flops`` and ``bytes``."""
    import sympy

    flops, bytes = sympy.symbols("flops bytes", positive=True)
    return "0" if ceilings.power is None else sympy.jscode(ceilings.power.us(flops, bytes))


def calculator_spec() -> dict[str, Any]:
    """What a calculator without a server needs, as plain data for JSON.

    Formulas are JavaScript expressions in the names of ``inputs``, ``n``, ``tflops``, ``gbps``,
    ``flops`` and ``bytes``; a time is no less than the device's ``power``, in ``flops`` and
    ``bytes``. For the mixed design the candidates for n are t and the multiples of ``multiple``
    below it; 0, then t, wins within ``tie`` of the least time, else the n that has it. Of the
    kernels the first in the list whose time is within ``tie`` of the least is the one to use.
    """
    import sympy

    shape = Shape()
    described = {
        "b": ("batch", "sequences", shape.b),
        "h": ("heads", "query heads", shape.h),
        "s": ("query tokens", "query tokens per sequence: 1 when decoding", 1),
        "t": ("context", "keys per sequence", 4096),
        "d": ("head dimension", "without the position part", shape.d),
        "k": ("latent dimension", "width of the compressed cache", shape.k),
        "p": ("rotary dimension", "position part of a key", shape.p),
        "w": ("element", "bytes per element", shape.w),
    }
    table = formulas()
    return {
        "inputs": [
            {"name": name, "label": label, "help": text, "default": default, "minimum": 1,
             "maximum": problems.MAX_EXTENT}
            for name, (label, text, default) in described.items()
        ],
        "devices": [
            {"key": device.key, "name": device.name, "tflops": ceilings.tflops,
             "gbps": ceilings.gbps, "power": power_us(ceilings),
             "ceiling_kind": ceilings.source_kind,
             "sources": list(ceilings.sources)}
            for device in usable_devices()
            for ceilings in [device.ceilings(DTYPE)]
        ],
        "kernels": [
            {"name": kernel, "reads": READS[kernel], "flops": sympy.jscode(table[kernel, "flops"]),
             "bytes": sympy.jscode(table[kernel, "bytes"])}
            for kernel in KERNELS
        ],
        "time_us": "Math.max(flops / (tflops * 1e6), bytes / (gbps * 1e3))",
        "multiple": costs.MIX,
        "flops_crossing": "k*d/(k - d)",
        "tie": TIE,
    }  # fmt: skip


# -- figures that texts ask for by directive ---------------------------------------------------


@dataclass(frozen=True)
class FigureSpec:
    """A computed figure: ``{{ regimes NAME ARGUMENTS }}``."""

    usage: str
    description: str
    render: Callable[..., str]
    arguments: int


def _formula(kernel: str, part: str) -> str:
    import sympy

    table = formulas()
    if (kernel, part) not in table:
        raise UnknownNameError("formula", f"{kernel} {part}", [" ".join(key) for key in table])
    return f"${sympy.latex(table[_kernel(kernel), part])}$"


def _kernel(name: str) -> Kernel:
    for kernel in KERNELS:
        if kernel == name:
            return kernel
    raise UnknownNameError("kernel of the analysis", name, list(KERNELS))


def _balance() -> str:
    import sympy

    return f"$n = {sympy.latex(balance_formula())}$"


def _or_never(value: int | None) -> str:
    return f"no s up to {S_LIMIT}" if value is None else f"s = {value}"


def _length(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= problems.MAX_EXTENT:
        raise KnowledgeError(f"t={text!r} is not a context length from 1 to {problems.MAX_EXTENT}")
    return int(text)


def _crossing(device: str, faster: str, slower: str, t: str) -> str:
    first, second = _kernel(faster), _kernel(slower)
    return _or_never(crossing(first, second, Shape(), _length(t), ceilings_of(device)))


def _compute_bound(device: str, kernel: str, t: str) -> str:
    return _or_never(compute_bound_from(_kernel(kernel), Shape(), _length(t), ceilings_of(device)))


def _wins_from(device: str, kernel: str, t: str) -> str:
    return _or_never(recommended_from(_kernel(kernel), Shape(), _length(t), ceilings_of(device)))


def _ridge(ceilings: Ceilings) -> str:
    return f"{ceilings.ridge:.0f} FLOP/byte"


def _published(device: str) -> Ceilings:
    return devices.load(device).ceilings(DTYPE, published=True)


_SHORT: dict[Kernel, str] = {
    "flash_mla": "latent",
    "flash_attention": "decompressed",
    "mla_var6_plus": "mixed",
}


def _map(device: str) -> str:
    found = regime_map(device)
    rows = []
    for s in found.s_values:
        row = [found.cell(s, t) for t in found.t_values]
        rows.append(
            [f"s = {s}", *(_SHORT[c.winner] + (f", n = {c.n}" if 0 < c.n < c.t and
             c.winner == "mla_var6_plus" else "") for c in row)]
        )  # fmt: skip
    return tables.table(["", *(f"t = {t}" for t in found.t_values)], rows)


def _best(device: str) -> str:
    ceilings, shape, t = ceilings_of(device), Shape(), 4096
    rows = []
    for s in S_VALUES:
        point = cell(shape, s, t, ceilings)
        times = [f"{point.time_us[kernel]:,.0f} us" for kernel in KERNELS]
        rows.append([str(s), str(point.n), *times, f"{point.gain:.2f}x", point.bound])
    head = ["s", "best n", *(f"`{kernel}`" for kernel in KERNELS), "gain", "bound"]
    return tables.table(head, rows)


def _prefix(device: str) -> str:
    ceilings, t, shared = ceilings_of(device), 8192, 4096
    batches = (1, 4, 16, 64, 256)
    rows = [
        [f"s = {s}"]
        + [f"{shared_prefix_gain(Shape(b=b), s, t, shared, ceilings):.2f}x" for b in batches]
        for s in (1, 2, 4, 16)
    ]
    return tables.table(["", *(f"b = {b}" for b in batches)], rows)


def _devices() -> str:
    rows = []
    for device in usable_devices():
        roof = device.ceilings(DTYPE)
        rows.append(
            [tables.cell(device.name), f"{roof.tflops:,g} TFLOP/s", f"{roof.gbps:,g} GB/s",
             _ridge(roof), roof.source_kind]
        )  # fmt: skip
    return tables.table(["Device", "Arithmetic", "DRAM", "Ridge point", "Ceilings"], rows)


def _calculator() -> str:
    """Stands for the calculator in plain Markdown; a site puts its own in this place."""
    spec = calculator_spec()
    rows = [[f"`{k['name']}`", f"`{k['flops']}`", f"`{k['bytes']}`"] for k in spec["kernels"]]
    return tables.table(["Kernel", "FLOPs", "Bytes"], rows)


FIGURES: Mapping[str, FigureSpec] = {
    "formula": FigureSpec("formula KERNEL flops|bytes", "cost model as a formula", _formula, 2),
    "balance": FigureSpec(
        "balance", "n at which the mixed design's two times are equal", _balance, 0
    ),
    "pair": FigureSpec(
        "pair KERNEL", "multiply-adds for a query and a key of a head",
        lambda kernel: str(pair_multiply_adds(_kernel(kernel))), 1,
    ),
    "flops-crossing": FigureSpec(
        "flops-crossing", "s from which decompressing takes fewer FLOPs than staying latent",
        lambda: f"s = {math.ceil(flops_crossing(Shape().d, Shape().k))}", 0,
    ),
    "ridge": FigureSpec(
        "ridge DEVICE", "ridge point of a device",
        lambda device: _ridge(ceilings_of(device)), 1,
    ),
    "published-ridge": FigureSpec(
        "published-ridge DEVICE", "ridge point of a device from published peaks alone",
        lambda device: _ridge(_published(device)), 1,
    ),
    "crossing": FigureSpec(
        "crossing DEVICE FASTER SLOWER T", "smallest s from which one kernel beats another",
        _crossing, 4,
    ),
    "compute-bound": FigureSpec(
        "compute-bound DEVICE KERNEL T", "smallest s from which arithmetic binds a kernel",
        _compute_bound, 3,
    ),
    "border-rows": FigureSpec(
        "border-rows DEVICE", "h s from which arithmetic binds the latent kernel of long contexts",
        lambda device: f"{border_rows(Shape(), ceilings_of(device)):.0f}", 1,
    ),
    "published-border-rows": FigureSpec(
        "published-border-rows DEVICE", "the same from published peaks alone",
        lambda device: f"{border_rows(Shape(), _published(device)):.0f}", 1,
    ),
    "wins-from": FigureSpec(
        "wins-from DEVICE KERNEL T", "smallest s from which a kernel is the one to use",
        _wins_from, 3,
    ),
    "map": FigureSpec("map DEVICE", "table of winners over s and t", _map, 1),
    "best-n": FigureSpec(
        "best-n DEVICE", "table of the best n and the reference times over s", _best, 1
    ),
    "shared-prefix": FigureSpec(
        "shared-prefix DEVICE", "table of what a decompressed shared prefix gains", _prefix, 1
    ),
    "devices": FigureSpec("devices", "table of the ceilings", _devices, 0),
    "calculator": FigureSpec("calculator", "the calculator's formulas", _calculator, 0),
}  # fmt: skip


#: Figures that are tables.
TABLES = frozenset({"map", "best-n", "shared-prefix", "devices", "calculator"})


def figure(name: str, *arguments: str) -> str:
    """A computed figure as Markdown.

    Raises:
        UnknownNameError: No such figure, kernel or device.
        KnowledgeError: Wrong arguments.
        DeviceFigureError: A ceiling of the device is unknown.
    """
    if name not in FIGURES:
        raise UnknownNameError("figure of the analysis", name, list(FIGURES))
    spec = FIGURES[name]
    if len(arguments) != spec.arguments:
        raise KnowledgeError(
            f"regimes {name} takes other arguments: {{{{ regimes {spec.usage} }}}}"
        )
    return spec.render(*arguments)
