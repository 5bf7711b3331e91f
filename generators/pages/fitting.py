"""Says on pages which versions compile for an arch: a verdict, and a table of designs."""

from __future__ import annotations

import re
from collections.abc import Callable

from generators.model import fits
from generators.model.columns import language_title
from generators.model.fits import Fit
from generators.model.run import Run
from generators.model.site import Site
from generators.pages.kernels import design_link
from generators.pages.proofs import checked
from generators.pages.version_facts import why_not
from generators.write.text import cell, code, sections, table
from mla_var3.archs import base_arch
from mla_var3.devices import Device, load
from mla_var3.evidence import CPU
from mla_var3.evidence.model import STATIC
from mla_var3.knowledge.evidence import Link
from mla_var3.languages import languages
from mla_var3.runtime.registry import Version
from mla_var3.static.occupancy import limits_of

#: From the instructions of one chip to those of the next.
PORTING = "docs/learn/hopper-to-blackwell.md"
#: So many designs are named, of more their number.
_NAMED = 4
#: What stands behind the few words that say why.
_FULLER = re.compile(r", which needs .*|: (?!uses).*| at kernels/.*", re.DOTALL)
#: The line of a source that a compiler names first.
_WHERE = re.compile(r"^kernels/\S+:\d+: ")
#: Archs whose SM is told of, a card of each.
RESOURCES = ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
Fits = list[tuple[list[Version], Fit]]


def resources(_site: Site, _link: Link) -> str:
    """What an SM has, by arch: registers, shared memory, threads, blocks."""
    known = [(arch, limits) for arch in RESOURCES if (limits := limits_of(base_arch(arch)))]
    rows = [
        [
            arch, f"{has.registers_per_sm:,}", str(has.registers_per_thread),
            f"{has.shared_memory_per_sm / 1024:.0f} KiB",
            f"{has.shared_memory_per_block_max / 1024:.0f} KiB",
            f"{has.threads_per_sm:,}", str(has.warps_per_sm), str(has.blocks_per_sm),
        ]
        for arch, has in known
    ]  # fmt: skip
    head = ["Chip", "Registers, 32 bits", "of a thread, most", "Shared memory", "of a block, most",
            "Threads", "Warps", "Blocks"]  # fmt: skip
    return table(head, rows, right=head[1:]) if rows else ""


def told_of(key: str) -> Callable[[Site, Link], str]:
    """What texts say of a device: how many versions compile for its chip, how many were timed."""

    def told(site: Site, link: Link) -> str:
        device = load(key)
        return verdict(site, device.sm, link, device)

    return told


def found_by(device: Device) -> list[str]:
    """What people type who look for kernels that run on a device."""
    name = device.name.removeprefix("NVIDIA ").removeprefix("GeForce ").partition(" (")[0]
    return [f"kernels that run on {name}", f"which kernels run on {name}", f"{name} kernels"]


def found_by_arch(sm: str) -> list[str]:
    """What people type who look for kernels of an arch."""
    return [f"{sm} kernels", f"kernels that compile for {sm}", f"which kernels run on {sm}"]


def of(site: Site, sm: str) -> Fits:
    """Each design that we compile, with what records say of it on an arch; what compiles first."""
    known = languages()
    designs = [
        versions
        for versions in site.designs().values()
        if (found := known.get(versions[0].language)) is not None and found.archs
    ]
    made = [(versions, fits.of(site, versions, sm)) for versions in designs]
    return sorted(made, key=lambda found: not found[1].compiled)


def verdict(site: Site, sm: str, link: Link, device: Device | None = None) -> str:
    """How many versions compile for an arch; of a device also how many were timed on it."""
    found = [fit for _, fit in of(site, sm)]
    compiled = [version for fit in found for version in fit.compiled]
    refused = sum(len(fit.refused) for fit in found)
    if not compiled and not refused:
        asked = code(f"nox -s profile -- DESIGN VERSION --arch={sm}")
        return f"No record says which kernels compile for {sm}; {asked} does, without a GPU."
    clean = sum(len(fit.clean) for fit in found)
    words = f"{len(compiled)} versions compile for {sm}, {clean} of them without spilling registers"
    said = f"**{words}; {refused} do not compile.**"
    if device is None:
        return said
    right = sum(_right_on_a_cpu(site, version) for version in compiled)
    stands_in = f"{right} of them ran on a CPU and gave right results"
    name = cell(device.name)
    timed = sum(device.key in _timed_on(site, version) for version in compiled)
    if not timed:
        return f"{said} None was timed on {name}; {stands_in}."
    where = link(f"results/{device.key}")
    return f"{said} [{timed} of them were timed on {name}]({where}), and {stands_in}."


def _timed_on(site: Site, version: Version) -> set[str]:
    return {run.record.target for run in site.timed_of(version)}


def _right_on_a_cpu(site: Site, version: Version) -> bool:
    """Whether its checks in the interpreter or the emulator passed, all of them."""
    on_cpu = [run for run in site.runs_of(version) if _is_on_a_cpu(run.record.target)]
    checks = [check for run in on_cpu if (check := checked(run)) is not None]
    return bool(checks) and all(check.status == "passed" for check in checks)


def _is_on_a_cpu(target: str) -> bool:
    return target == CPU or target.startswith(STATIC)


def designs(site: Site, sm: str, link: Link) -> str:
    """A row per design: its versions that compile and those that do not; empty without records."""
    found = of(site, sm)
    rows = [
        _row(versions, fit, sm, link)
        for versions, fit in found
        if fit.compiled or fit.refused or fit.failed
    ]
    head = [
        "Design", "Compiles, no spills", "Compiles, spills registers",
        "Does not compile, or failed a check",
    ]  # fmt: skip
    if not rows:
        return ""
    return sections(table(head, rows), _ported(site, rows, link), _unrecorded(found, sm))


def cards(site: Site, link: Link) -> str:
    """A row per arch: its cards, what compiles for it in each language, and what was timed."""
    by_sm: dict[str, list[Device]] = {}
    for device in site.devices:
        if device.is_compile_target:
            by_sm.setdefault(device.sm, []).append(device)
    shown = [key for key, language in languages().items() if language.archs]
    rows = []
    for sm, devices in sorted(by_sm.items(), key=lambda item: -_number(item[0])):
        found = of(site, sm)
        timed = [one for device in devices if (one := _times(site, device, link))]
        rows.append(
            [
                ", ".join(_card(device, link) for device in devices)
                + f" ({_of_arch(site, sm, link)})",
                *(_in_language(found, key, link) for key in shown),
                ", ".join(timed) or "no",
            ]
        )
    head = ["Your card", *(f"{cell(language_title(key))} kernels" for key in shown), "Timed here?"]
    return table(head, rows)


def _of_arch(site: Site, sm: str, link: Link) -> str:
    """An arch, linked to what compiled for it where anything was tried."""
    made = any(run.record.target == f"{STATIC}{sm}" for run in site.runs)
    return f"[{code(sm)}]({link(f'results/{STATIC}{sm}')})" if made else code(sm)


def _number(sm: str) -> int:
    return int(re.sub(r"\D", "", sm))


def _card(device: Device, link: Link) -> str:
    """A device as people call it, linked to its page."""
    name = device.name.removeprefix("NVIDIA ").removeprefix("GeForce ").partition(" (")[0]
    return f"[{cell(name)}]({link(f'knowledge/devices/{device.key}.toml')})"


def _times(site: Site, device: Device, link: Link) -> str:
    count = sum(run.is_timed and run.record.target == device.key for run in site.runs)
    if not count:
        return ""
    name = cell(device.name.removeprefix("NVIDIA ").split()[0])
    return f"{name}: [{count} records]({link(f'results/{device.key}')})"


def _in_language(found: Fits, language: str, link: Link) -> str:
    """What compiles for an arch in a language, and why the rest does not."""
    own = [(versions, fit) for versions, fit in found if versions[0].language == language]
    compiled = sum(len(fit.compiled) for _, fit in own)
    clean = sum(len(fit.clean) for _, fit in own)
    lacks: dict[str, int] = {}
    for _, fit in own:
        for _, run in fit.refused:
            why = _few_words(run, run.record.target.removeprefix(STATIC)).partition(" (")[0]
            lacks[why] = lacks.get(why, 0) + 1
    refused = sum(lacks.values())
    if not compiled and not refused:
        return "not tried"
    designs = [versions[0] for versions, fit in own if fit.compiled]
    named = ", ".join(design_link(version, link) for version in designs)
    names = f": {named}" if len(designs) <= _NAMED else f" of {len(designs)} designs"
    said = f"{compiled} versions compile, {clean} without spills{names}" if compiled else ""
    why = ", ".join(
        _reason(reason, count if len(lacks) > 1 else None) for reason, count in lacks.items()
    )
    not_all = "1 does not" if refused == 1 else f"{refused} do not"
    rest = f"{not_all}: {why}" if compiled else f"none of the {refused} tried: {why}"
    return "; ".join(filter(None, [said, rest if refused else ""]))


def _reason(reason: str, count: int | None) -> str:
    """Why versions do not compile: what they use, or what a compiler said."""
    if not reason.startswith("uses "):
        return cell(reason)
    return f"{'they' if count is None else count} {reason.replace('uses', 'use')}"


def _ported(site: Site, rows: list[list[str]], link: Link) -> str:
    """Where a reader learns what takes the place of an instruction that an arch lacks."""
    if not any("wgmma" in row[-1] for row in rows) or not (site.root / PORTING).is_file():
        return ""
    return f"What takes the place of wgmma there: [from Hopper to Blackwell]({link(PORTING)})."


def _row(versions: list[Version], fit: Fit, sm: str, link: Link) -> list[str]:
    reasons: dict[str, list[Version]] = {}
    for version, run in (*fit.refused, *fit.failed):
        reasons.setdefault(_few_words(run, sm), []).append(version)
    return [
        f"{design_link(versions[0], link)}, {cell(language_title(versions[0].language))}",
        fits.spans(versions, fit.clean),
        fits.spans(versions, fit.spilling),
        "<br>".join(f"{fits.spans(versions, told)}: {cell(why)}" for why, told in reasons.items()),
    ]


def _few_words(run: Run, sm: str) -> str:
    said = why_not(run)[2].removeprefix(f"does not compile for {sm}: ")
    return _FULLER.sub("", _WHERE.sub("", said))


def _unrecorded(found: Fits, sm: str) -> str:
    """Versions that nobody compiled for the arch."""
    missing = [
        f"{versions[0].design_key} {fits.spans(versions, fit.unknown)}"
        for versions, fit in found
        if fit.unknown
    ]
    if not missing:
        return ""
    asked = code(f"nox -s profile -- DESIGN VERSION --arch={sm}")
    return f"Without a record here: {cell('; '.join(missing))}. {asked} says it, without a GPU."
