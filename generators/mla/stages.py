"""Works out how many tiles of the latent cache fit beside the queries in shared memory."""

from __future__ import annotations

from generators.model.site import Site
from generators.write.text import sections, table
from mla_var3.archs import base_arch
from mla_var3.knowledge.evidence import Link
from mla_var3.static.occupancy import limits_of

#: Values of a row, latent and rotary, and bytes of each.
ROW, BYTES = 512 + 64, 2
#: Rows of queries in a block, and keys of a tile.
ROWS, KEYS = (16, 64, 128), (32, 64, 128)
ARCHS = ("sm_90", "sm_100", "sm_80", "sm_89", "sm_120")
_LIMIT = "knowledge/languages/cute-dsl/anti-patterns/cute-shared-memory-limit.md"


def text(_site: Site, link: Link) -> str:
    """A row per tile: bytes of queries and of keys, and how many of the latter fit."""
    by_limit: dict[int, list[str]] = {}
    for arch in ARCHS:
        if limits := limits_of(base_arch(arch)):
            by_limit.setdefault(limits.shared_memory_per_block_max, []).append(arch)
    groups = sorted(by_limit.items(), reverse=True)
    head = ["Rows of queries", "Keys per tile", "Bytes of queries", "Bytes of a tile"]
    head += [f"Stages on {', '.join(archs)} ({limit:,})" for limit, archs in groups]
    rows = []
    for queries in ROWS:
        for keys in KEYS:
            held, tile = queries * ROW * BYTES, keys * ROW * BYTES
            fit = [_fit(limit - held, tile) for limit, _ in groups]
            rows.append([str(queries), str(keys), f"{held:,}", f"{tile:,}", *fit])
    return sections(
        table(head, rows),
        f"Rows of {ROW} values (512 latent, 64 rotary) in 16 bits; the bytes that a block may take "
        f"stand in brackets ([the limit]({link(_LIMIT)})). What is left over holds barriers and "
        "weights. An fp8 cache halves a tile.",
    )


def _fit(left: int, tile: int) -> str:
    return "queries alone do not fit" if left < 0 else str(left // tile)
