"""Says which versions of the compilers and DSLs the records were made with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from generators.model.site import Site
from generators.pages.installing import PACKAGES
from generators.write.text import cell, code, table
from mla_var3.evidence import Record
from mla_var3.knowledge.evidence import Link

#: What compiles or launches a kernel of ours, and what it is called.
TOOLS = {name: one["tool"] for name, one in PACKAGES.items()}


@dataclass(frozen=True)
class Used:
    """Records of one version of a tool."""

    version: str
    records: tuple[Record, ...]

    @property
    def timed(self) -> int:
        """How many of them have a device."""
        return sum(record.device is not None for record in self.records)

    @property
    def span(self) -> str:
        """First and last day."""
        days = sorted(record.time.date().isoformat() for record in self.records)
        return days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"


def used(site: Site, tool: str) -> Iterator[Used]:
    """The versions of a tool, the newest records first."""
    found: dict[str, list[Record]] = {}
    for run in (*site.runs, *site.earlier):
        if tool in run.record.toolchain:
            found.setdefault(run.record.toolchain[tool], []).append(run.record)
    for version, records in sorted(
        found.items(), key=lambda item: max(record.time for record in item[1]), reverse=True
    ):
        yield Used(version, tuple(records))


def text(site: Site, link: Link) -> str:
    """A row per tool and version: on how many records, of which days, under which drivers."""
    rows, drivers = [], set()
    for tool, name in TOOLS.items():
        for one in used(site, tool):
            drivers |= {r.device.driver for r in one.records if r.device and r.device.driver}
            rows.append(
                [
                    f"{cell(name)} ({code(tool)})", f"**{cell(one.version)}**",
                    f"{one.timed:,}", f"{len(one.records) - one.timed:,}", one.span,
                ]
            )  # fmt: skip
    head = ["Tool", "Version", "Records on a GPU", "Others (compiled, CPU)", "Made"]
    told = ", ".join(map(cell, sorted(drivers)))
    return table(head, rows) + (f"\nDrivers of these GPU records: {told}." if drivers else "")
