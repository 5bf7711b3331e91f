"""Says on a device's page which measurements are missing, the most useful first, and how to send.

What is missing follows from the records: problems of the standard set that nobody timed, grids of
problems without a record of the device, and measured ceilings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from generators.model.site import Site
from generators.write.text import cell, code, fence, sections, table
from mla_var3.campaign import contributing
from mla_var3.devices import Device
from mla_var3.errors import DeviceFigureError
from mla_var3.knowledge.evidence import Link

#: How times are sent, and how a device's figures are.
CONTRIBUTE, FIGURES, SCOPE = "docs/contribute.md", "CONTRIBUTING.md", "docs/scope.md"
#: Records of a device below which its page begins with what is wanted.
FEW = 50
#: What the ceilings are measured for: the type whose rate predictions read most.
DTYPE = "bfloat16"
HEADING = "What is wanted"
#: The standard set's minutes, from its budget.
_MINUTE = 60
#: Chips that the serving calls' kernels run on.
_SERVED = ("sm_90", "sm_90a")


@dataclass(frozen=True)
class Want:
    """A measurement that nobody made on a device.

    Attributes:
        what: What is measured.
        why: What it would tell that nothing else does.
        command: What takes it.
        minutes: How long it takes, at most.
    """

    what: str
    why: str
    command: str
    minutes: str


def wants(site: Site, device: Device) -> Iterator[Want]:
    """What is missing of a device, the most useful first."""
    records = [run.record for run in (*site.runs, *site.earlier)]
    missing = contributing.wanted(device.key, records)
    if missing:
        standard = contributing.standard()
        problems = "; ".join(cell(str(one)) for one in missing)
        yield Want(
            f"the standard set: {problems}",
            "the newest version of every design that runs there, in one process: the first times "
            "by which kernels and this card compare",
            'nox -s contribute -- --by="Your Name"',
            f"{standard.budget_s / _MINUTE:.0f}, and compiling",
        )
    if not _measured(device):
        yield Want(
            "what its tensor cores and its memory reach",
            "every prediction and share of the bound here rests on published rates until then",
            "python scripts/measure-ceilings.py",
            "5",
        )
    if device.sm in _SERVED and not _timed_over_pages(site, device):
        yield Want(
            "decode over pages beside FlashMLA, on the grid of server problems",
            "whether what an H200 shows holds on this card too",
            "nox -s bench -- --peers --set=serving --designs=flash_mla@cute-dsl,deepseek_flash_mla",
            "10",
        )
    if missing:
        yield Want(
            "one problem of your own, of the sizes that you serve",
            "sizes of a real server are worth more than ours",
            "nox -s bench -- --b=64 --h=16 --s=1 --t=8192",
            "2",
        )


def section(site: Site, device: Device, link: Link) -> str:
    """The list, the commands and how to hand over; empty where nothing is missing."""
    if not device.is_compile_target or not (found := list(wants(site, device))):
        return ""
    rows = [
        [str(place), want.what, want.why, code(want.command), want.minutes]
        for place, want in enumerate(found, 1)
    ]
    sent = _linked(site, link, CONTRIBUTE, "what such a file holds")
    return sections(
        f"## {HEADING}",
        f"{_nothing(site, device)} The most useful first; each stands alone:",
        table(["", "Measurement", "What it would tell", "Command", "Minutes"], rows),
        "**Before the card comes** (no GPU needed): Linux on x86-64, a clone, `pip install nox`, "
        f"then {code(f'nox -s profile -- flash_mla --arch={device.sm}')}, which installs the rest "
        f"and says whether it compiles for this chip. **With an hour:** the first line of the "
        f"table. **With a weekend:** all of it, then the first again, since a second run shows "
        f"the noise. Nothing else may use the GPU meanwhile. {_scope(site, device, link)}",
        f"**To hand over:** the first command leaves one file and prints these lines ({sent}); "
        f"the ceilings' output goes into {code(f'knowledge/devices/{device.key}.toml')} "
        f"({_linked(site, link, FIGURES, 'how')}); what {code('nox -s bench')} writes below "
        f"{code(f'results/{device.key}')} is committed as it is.",
        fence(
            f"git switch -c measured-{device.key}-RUN\n"
            f"nox -s contribute -- out/contributions/{device.key}-RUN.json\n"
            f'git add results && git commit -m "feat(records): a run on {device.key}"',
            "console",
        ),
    )


def everywhere(site: Site, link: Link) -> str:
    """A row per card: how much was measured there, and what of it is wanted first."""
    rows = []
    for device in site.devices:
        if not device.is_compile_target or not (found := list(wants(site, device))):
            continue
        page = link(f"knowledge/devices/{device.key}.toml")
        first = found[0]
        rows.append([
            f"[{cell(_name(device))}]({page}#what-is-wanted)",
            str(_records(site, device)),
            first.what,
            code(first.command),
        ])  # fmt: skip
    rows.sort(key=lambda row: int(row[1]))
    return table(
        ["Card (all that is wanted, in order)", "Records", "First", "Command"],
        rows,
        right=["Records"],
    )


def found_by(device: Device) -> dict[str, list[str]]:
    """What people type who have such a card and would measure on it."""
    name = _name(device)
    return {
        "what-is-wanted": [
            f"measurements missing on {name}",
            f"I have a {name} for a weekend",
            f"measure something on a {name}",
            f"what to run on a {name} for you",
        ]
    }


def _name(device: Device) -> str:
    return device.name.removeprefix("NVIDIA ").partition(" (")[0]


def first(site: Site, device: Device) -> bool:
    """Whether a page begins with what is wanted: hardly anything was measured there."""
    return _records(site, device) < FEW


def _nothing(site: Site, device: Device) -> str:
    count = _records(site, device)
    return (
        "**Nothing was timed on this card here; who has one can change that.**"
        if not count
        else f"**{count} records are of this card; these are missing.**"
    )


def _records(site: Site, device: Device) -> int:
    return sum(run.record.target == device.key for run in site.runs)


def _measured(device: Device) -> bool:
    """Whether reference rates are measured ones."""
    try:
        return device.ceilings(DTYPE).source_kind == "measured"
    except DeviceFigureError:
        return False


def _timed_over_pages(site: Site, device: Device) -> bool:
    return any(
        run.is_timed and run.record.target == device.key and run.record.problem.get("page")
        for run in site.runs
    )


def _scope(site: Site, device: Device, link: Link) -> str:
    """Why a run may come out short."""
    told = _linked(site, link, f"{SCOPE}#which-gpu-do-i-need", "what compiles for it")
    return f"What this chip cannot run is left out, and the file says so: {told}."


def _linked(site: Site, link: Link, target: str, words: str) -> str:
    """Words that lead to a file of the checkout, where it has that."""
    there = (site.root / target.partition("#")[0]).is_file()
    return f"[{words}]({link(target)})" if there else words
