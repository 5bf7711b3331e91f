"""Sets a B300 beside a B200: what a decode kernel would notice, from the device files."""

from __future__ import annotations

from generators.mla.cards import rates, stated
from generators.model.site import Site
from generators.write.text import cell, table
from mla_var3.knowledge.evidence import Link

PAIR = ("nvidia-b200", "nvidia-b300")
#: Figures of a row each, by what people call them.
FIGURES = {
    "memory": "dram_capacity",
    "SMs": "sm_count",
    "bf16, dense": "tensor_bf16_fp32acc",
    "fp8, dense": "tensor_fp8",
    "fp4, dense": "tensor_fp4",
    "int8": "tensor_int8",
    "shared memory per SM": "shared_memory_per_sm",
    "registers per SM": "registers_per_sm",
    "power": "tdp",
}


def text(site: Site, link: Link) -> str:
    """A row per figure; those that differ first."""
    known = site.cards
    if not set(PAIR) <= known.keys():
        return ""
    two = [known[key] for key in PAIR]
    rows = [[name, *(stated(device, metric) for device in two)] for name, metric in FIGURES.items()]
    rows.append(["bandwidth", *(f"{rates(device).gbps / 1000:.3g} TB/s" for device in two)])
    rows.sort(key=lambda row: row[1] == row[2])
    named = [
        f"[{cell(device.name.partition(' (')[0])}]({link(f'knowledge/devices/{device.key}.toml')})"
        for device in two
    ]
    return table(["", *named], rows)
