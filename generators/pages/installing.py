"""Says which packages both DSLs need, as pinned here, and with which driver they ran."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

from generators.model.site import Site
from generators.write.text import cell, code, fence, table
from mla_var3 import inputs
from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.evidence import Link

CONSTRAINTS = "constraints.txt"
#: Of each package its place here, by its name; a language alone knows its words in code.
PACKAGES = tomllib.loads(Path(__file__).with_name("packages.toml").read_text(encoding="utf-8"))
#: What a kernel of either DSL needs: package, extra that is asked for, and what it is.
NEEDED = tuple(
    (name, one.get("extra", ""), one["needed"]) for name, one in PACKAGES.items() if "needed" in one
)
#: What compiles on a GPU host.
COMPILERS = tuple(name for name, one in PACKAGES.items() if one.get("compiles"))


def pinned(site: Site) -> dict[str, str]:
    """Version of each package that the project pins.

    Raises:
        KnowledgeError: A package that a kernel needs is not among them.
    """
    lines = inputs.read_text(site.root / CONSTRAINTS).splitlines()
    found = dict(line.strip().split("==") for line in lines if "==" in line and line[0] != "#")
    if absent := [name for name, *_ in NEEDED if name not in found]:
        raise KnowledgeError(f"{CONSTRAINTS} does not pin {', '.join(absent)}")
    return found


def command(site: Site, link: Link) -> str:
    """One command that installs both DSLs as they are pinned here."""
    del link
    versions = pinned(site)
    asked = [
        f"'{name}[{extra}]=={versions[name]}'" if extra else name
        for name, extra, _ in NEEDED
        if extra or name == "torch"
    ]
    return fence(f"$ python -m pip install {' '.join(asked)}", "console")


def whole(site: Site, link: Link) -> str:
    """All commands for a machine that has nothing but a driver."""
    install = command(site, link).splitlines()[1].removeprefix("$ ")
    lines = (
        "sudo apt update && sudo apt install -y python3-venv git",
        "nvidia-smi                             # driver r580 or later",
        "python3 --version                      # 3.11 to 3.13",
        "python3 -m venv kernels && . kernels/bin/activate",
        install,
        'git clone ADDRESS hypermla             # ADDRESS: "Source", at the top of the page',
        "cd hypermla",
        "python examples/first/add_cutile.py    # cuTile: right: True",
        "python examples/first/add_cute.py      # CuTe DSL: right: True",
    )
    return fence("\n".join(lines), "bash")


def packages(site: Site, link: Link) -> str:
    """A row per package: its version here, and what it is."""
    del link
    versions = pinned(site)
    rows = [[code(name), cell(versions[name]), what] for name, _, what in NEEDED]
    return table(["Package", "Version here", "What it is"], rows)


def ran(site: Site, link: Link) -> str:
    """Driver and compilers of the runs on GPUs, from their records."""
    found: Counter[tuple[str, str, str]] = Counter()
    for run in site.runs:
        device = run.record.device
        if device is None or not device.driver:
            continue
        tools = run.record.toolchain
        for name in COMPILERS:
            if name in tools and tools[name].count(".") > 1:
                found[(run.record.target, device.driver, f"{name} {tools[name]}")] += 1
    rows = [
        [f"[{cell(target)}]({link(f'results/{target}')})", cell(driver), code(tool), f"{count:,}"]
        for (target, driver, tool), count in sorted(found.items())
    ]
    return table(["Card", "Driver", "With", "Measurements"], rows)
