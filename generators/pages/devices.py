"""Makes the device pages: an index, and a page per GPU with every figure and its source."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from generators.model.site import Site
from generators.pages import energy, fitting, wanting
from generators.write.page import Page
from generators.write.text import cell, code, fold, meta, sections, table
from mla_var3.campaign import contributing
from mla_var3.devices import Ceilings, Device, Figure
from mla_var3.devices.model import NOT_SUPPORTED, UNKNOWN
from mla_var3.errors import DeviceFigureError
from mla_var3.evidence.model import STATIC
from mla_var3.knowledge.evidence import Link

#: Where cards are compared for whoever buys or rents one.
CARDS = "generators/mla/cards.py"
#: How times are sent.
CONTRIBUTE = wanting.CONTRIBUTE
#: Element types whose rates are shown.
DTYPES = ("bfloat16", "float16", "float8")


def device_page(device: Device) -> str:
    """Path of a device's page."""
    return f"devices/{device.key}.md"


def _file(device: Device) -> str:
    return f"knowledge/devices/{device.key}.toml"


def places(site: Site) -> Mapping[str, str]:
    """The device files."""
    found = {_file(device): device_page(device) for device in site.devices}
    fits = {_fit(device): _fit_page(device) for device in site.devices if energy.rows(site, device)}
    return {"knowledge/devices": "devices/index.md", **found, **fits}


def _fit(device: Device) -> str:
    """How pages name the fit of a device's power."""
    return f"{_file(device)}#joules"


def _fit_page(device: Device) -> str:
    return f"devices/{device.key}-joules.md"


def pages(site: Site) -> list[Page]:
    """Index, then the devices by key."""
    fits = (_joules(site, device) for device in site.devices)
    return [_index(site), *(_device(site, device) for device in site.devices), *filter(None, fits)]


def _joules(site: Site, device: Device) -> Page | None:
    """The fit of a device's power to records, with every window; None without any."""
    path = _fit_page(device)
    said = energy.section(site, device, site.link(path))
    if not said:
        return None
    title = f"{device.name}: the fit of its power"
    return Page(
        path,
        sections(meta(title=title, description=title), f"# {cell(title)}", said),
        source=_file(device),
        nav=("Devices", title),
    )


def _index(site: Site) -> Page:
    path = "devices/index.md"
    link = site.link(path)
    rows = []
    for device in site.devices:
        unknown = sum(figure.value == UNKNOWN for figure in device.figures)
        rows.append(
            [
                f"[{cell(device.name)}]({link(_file(device))})",
                f"{cell(device.arch)}, {cell(device.sm)}",
                _memory(device),
                *_published(device),
                *_rates(device.ceilings, "bfloat16"),
                str(unknown),
                str(len(device.conflicts)),
            ]
        )
    head = [
        "Device", "Architecture", "Memory", "bf16, published", "DRAM, published",
        "bf16, reference", "DRAM, reference", "Ridge point", "Reference rates",
        "Unknown", "Conflicts",
    ]  # fmt: skip
    return Page(
        path,
        sections(
            meta(description="GPUs with their rates and ridge points, every figure sourced"),
            "# Devices",
            "Every figure that predictions and rooflines use, with the source that states it. "
            "A figure that nobody publishes is unknown, never guessed; where sources disagree all "
            "are kept, and the one in use is marked with its reason.",
            f"Two cards side by side, and what limits MLA on them: [which card]({link(CARDS)})."
            if CARDS in site.addresses
            else "",
            table(head, rows),
            "**To compare two devices take the columns that say published**: reference rates are "
            "measured on some and published on others. The **reference rates** are those that a "
            "named kernel attained, where it was measured, and the published ones else: a "
            "reference time is what work takes at them. A **bound** is taken at the largest rates "
            "that anybody states or ever measured, which each device's "
            "page names. The **ridge point** is the arithmetic intensity, in FLOP per byte, at "
            "which a kernel turns from memory-bound to compute-bound: arithmetic rate over DRAM "
            "rate. AMD devices are listed for comparison; the kernels' languages do not compile "
            "for them.",
        ),
        nav=("Devices",),
    )


def _memory(device: Device) -> str:
    """How much DRAM a device has."""
    figure = _used(device, "dram_capacity")
    return "unknown" if figure is None else _value(figure)


def _published(device: Device) -> list[str]:
    """The largest arithmetic and bandwidth that anybody states: the same kind for all devices."""
    try:
        roof = device.bound("bfloat16")
    except DeviceFigureError as error:
        return ["not supported" if "does not support" in str(error) else "unknown", ""]
    return [f"{roof.tflops:,g} TFLOP/s", f"{roof.gbps:,g} GB/s"]


def _rates(stated: Callable[[str], Ceilings], dtype: str) -> list[str]:
    """Arithmetic, bandwidth, ridge point and their kind; what is missing instead where it is."""
    try:
        roof = stated(dtype)
    except DeviceFigureError as error:
        missing = "not supported" if "does not support" in str(error) else "unknown"
        return [missing, "", "", ""]
    return [
        f"{roof.tflops:,g} TFLOP/s",
        f"{roof.gbps:,g} GB/s",
        f"{roof.ridge:.4g} FLOP/byte",
        roof.source_kind,
    ]


def _device(site: Site, device: Device) -> Page:
    path = device_page(device)
    link = site.link(path)
    torch = ", ".join(code(name) for name in device.torch_names)
    facts = [
        ["Vendor", cell(device.vendor)],
        ["Architecture", cell(device.arch)],
        ["Compile target", code(device.sm)],
        ["torch calls it", torch],
        ["Stands for", code(device.default_for) if device.default_for else ""],
    ]
    rates = [
        [dtype, what, *_rates(stated, dtype)]
        for dtype in DTYPES
        for what, stated in (("bound", device.bound), ("reference", device.ceilings))
    ]
    kernels, wanted = _kernels(site, device, link), wanting.section(site, device, link)
    begins = wanting.first(site, device)
    return Page(
        path,
        sections(
            meta(
                title=f"{device.name}: its figures",
                description=f"{device.name}: figures and their sources",
                found_by=[
                    f"{device.name} {what}"
                    for what in ("memory bandwidth", "peak FLOPS", "ridge point", "datasheet")
                ]
                + (fitting.found_by(device) if device.is_compile_target else []),
                **({"sections": wanting.found_by(device)} if wanted else {}),
            ),
            f"# {cell(device.name)}: its figures",
            _which_run(site, device, link, listed=bool(kernels)),
            cell(device.note),
            wanted if begins else "",
            "## Rates",
            table(["Operands", "Rates", "Arithmetic", "DRAM", "Ridge point", "Kind"], rates),
            _power(site, device, link),
            kernels,
            "## Figures in use",
            _in_use(device),
            fold(
                "Every figure as stated",
                f"{len(device.figures)} with their sources",
                sections(
                    "Throughput with sparsity is listed and never used: no kernel here uses "
                    "structured sparsity.",
                    _figures(device),
                ),
            ),
            fold("Where sources disagree", f"{len(device.conflicts)} figures", _choices(device)),
            "## The device",
            table(["", ""], [row for row in facts if row[1]]),
            _records(site, device, link),
            "" if begins else wanted,
        ),
        source=_file(device),
        nav=("Devices", device.name),
    )


def _which_run(site: Site, device: Device, link: Link, *, listed: bool) -> str:
    """Whether our kernels run on it; the list, if there is one, stands below the rates."""
    if not device.is_compile_target:
        return "The kernels' languages do not compile for it."
    found = fitting.verdict(site, device.sm, link, device)
    return f"{found} [Which ones](#kernels-that-run-on-it)." if listed else found


def _kernels(site: Site, device: Device, link: Link) -> str:
    """The designs by what the compiler makes of them for it."""
    listed = fitting.designs(site, device.sm, link) if device.is_compile_target else ""
    if not listed:
        return ""
    compiled = f"[every compile for {device.sm}]({link(f'results/{STATIC}{device.sm}')})"
    return sections(
        "## Kernels that run on it",
        f"By the newest records of a compile for {device.sm}: {compiled}.",
        listed,
    )


def _power(site: Site, device: Device, link: Link) -> str:
    """Where the fit of its power stands."""
    if not (found := energy.rows(site, device)):
        return ""
    return (
        f"What the board's power allows is fitted to {len(found)} records: "
        f"[the fit and its error]({link(_fit(device))})."
    )


def _in_use(device: Device) -> str:
    """The figures that predictions use, a row per metric; none that is unknown."""
    metrics = dict.fromkeys(figure.metric for figure in device.figures)
    used = [figure for metric in metrics if (figure := _used(device, metric)) is not None]
    rows = [
        [cell(figure.metric.replace("_", " ")), _linked(figure), cell(figure.condition)]
        for figure in used
    ]
    return table(["Figure", "Value", "Condition"], rows)


def _linked(figure: Figure) -> str:
    """A value, linked to what states it."""
    known = figure.address not in ("", UNKNOWN)
    return f"[{_value(figure)}]({figure.address})" if known else _value(figure)


def _records(site: Site, device: Device, link: Link) -> str:
    count = sum(run.record.target == device.key for run in site.runs)
    if not count:
        return "No record was made on this device yet."
    told = " ".join([f"[{count} records]({link(f'results/{device.key}')}) were made on it.",
                     *contributed(site, device.key)])  # fmt: skip
    return f"{told} {_sending(site, link, 'Add yours')}."


def _sending(site: Site, link: Link, said: str) -> str:
    """Words that lead to how times are sent, where the checkout says how."""
    there = (site.root / CONTRIBUTE).is_file()
    return f"[{said}]({link(CONTRIBUTE)})" if there else said


def contributed(site: Site, key: str) -> list[str]:
    """A sentence on the runs of a device that somebody contributed; empty where nobody did."""
    found = contributing.contributed(site.root / "results").values()
    runs = [
        f"{code(one.run)} by {cell(one.by or 'somebody')} on {one.time:%Y-%m-%d}"
        for one in found if one.device == key
    ]  # fmt: skip
    return [f"Contributed runs among the records: {', '.join(runs)}."] if runs else []


def _choices(device: Device) -> str:
    reasons = {used.metric: used.reason for used in device.used}
    rows = []
    for metric, figures in device.conflicts.items():
        used = _used(device, metric)
        rows.append(
            [
                code(metric),
                "<br>".join(
                    f"{'**' if figure is used else ''}{_value(figure)}"
                    f"{'** (used)' if figure is used else ''} {cell(figure.condition)}"
                    for figure in figures
                ),
                cell(reasons.get(metric, "" if used else "none is used until one is chosen")),
            ]
        )
    return table(["Figure", "Stated", "Reason of the choice"], rows)


def _used(device: Device, metric: str) -> Figure | None:
    try:
        return device.figure(metric)
    except DeviceFigureError:
        return None  # Unknown, not supported, or nothing chosen: nothing is marked.


def _value(figure: Figure) -> str:
    if figure.value == UNKNOWN:
        return "unknown"
    if figure.value == NOT_SUPPORTED:
        return "not supported"
    return cell(f"{figure.value:,} {figure.unit}")


def _figures(device: Device) -> str:
    rows = []
    metrics = dict.fromkeys(figure.metric for figure in device.figures)
    for metric in metrics:
        used = _used(device, metric)
        rows += [
            [
                code(metric),
                _value(figure),
                "used" if figure is used else "",
                cell(figure.condition),
                _source(figure),
            ]
            for figure in device.figures
            if figure.metric == metric
        ]
    return table(["Figure", "As stated", "Used", "Condition", "Source"], rows)


def _source(figure: Figure) -> str:
    if figure.value == UNKNOWN:
        return "no source was found"
    named = cell(figure.source)
    if figure.address not in ("", UNKNOWN):
        named = f"[{named}]({figure.address})"
    quoted = f": “{cell(figure.quoted)}”" if figure.quoted else ""
    derived = ", derived from it" if figure.derived else ""
    copy = f", read in {cell(figure.read_at)}" if figure.read_at else ""
    return f"{named}{quoted} ({cell(figure.kind or '')}{derived}{copy})"
