"""A small checkout in a temporary folder: two pages, a text, a devlog and records."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mla_var3 import evidence
from mla_var3.evidence import runs
from mla_var3.knowledge.linting import lint
from mla_var3.knowledge.pages import Catalogue, Design, load_all
from mla_var3.languages.cutile.facts import CutileFacts

#: What the sources of every version of the tree are; a record with others is stale.
SOURCES = {"kernels/cutile/mla/flash_mla/flash_mla.py": "a" * 40}
DESIGNS = {
    "flash_mla": Design(
        "flash_mla", "cutile-dsl", "kernels/cutile/mla/flash_mla/devlog.md", ("v0", "v1")
    )
}
PAGE = "knowledge/optimizations/o1-group.md"
ANTI = "knowledge/anti-patterns/a1-spill.md"
TEXT = "knowledge/workloads/mla.md"
DEVLOG = "kernels/cutile/mla/flash_mla/devlog.md"
BEFORE = "results/static/sm_90/cutile/mla/flash_mla/v0/b1/static"
AFTER = "results/static/sm_90/cutile/mla/flash_mla/v1/b1/static"

PAGE_TEXT = """---
id: o1-group
title: Group heads
kind: optimization
scope: shared
impact: high
regimes: [decode, speculative]
archs: [sm_90]
affects:
  registers: down
triggers:
  - metric: spill_instructions
    comparison: ">"
    value: 0
  - metric: registers
    comparison: ">="
    value: 255
    with:
      - {metric: num_worker_warps, comparison: "<", value: 8}
basis: static
evidence:
  - before: results/static/sm_90/cutile/mla/flash_mla/v0/b1/static
    after: results/static/sm_90/cutile/mla/flash_mla/v1/b1/static
    metric: [registers, spill_instructions]
    note: only the hint differs
  - record: results/static/sm_90/cutile/mla/flash_mla/v1/b1/static
    metric: mma_path
  - key: paper
    external: A paper, 2025
    address: https://example.org/paper
    quoted: up to 3.2x faster, 62 TFLOP/s
  - key: seen
    observed: one GPU, one day
    quoted: it took 1594 us
used_by: [flash_mla v1]
violated_by: [flash_mla v0]
interacts: [a1-spill]
since: 2026-11-21
---

## When to apply

Always, at s=16 and 8 warps, with `kernels/cutile/mla/flash_mla/devlog.md` at hand.

## Mechanism

Some $n = \\frac{a}{b}$ words.

## Affected metrics

See [the other page](../anti-patterns/a1-spill.md#mechanism).

## Implementation

```python
x = {"a": 1 < 2}
```

## Performance evidence

{{ evidence }}

It gains [3.2x](source:paper), or [1594 us](source:seen), with
{{ record results/static/sm_90/cutile/mla/flash_mla/v1/b1/static registers }} left.

## Generalization

On {{ device nvidia-h200-sxm sm_count }} processors.

## Pitfalls

None known.

## Interactions

- [A1](../anti-patterns/a1-spill.md) is what it mends.
"""

ANTI_TEXT = """---
id: a1-spill
title: Spill registers
kind: anti-pattern
scope: shared
impact: medium
regimes: [decode, speculative, prefill]
archs: [sm_90, sm_100]
affects:
  registers: up
triggers:
  - {metric: mma_path, comparison: "==", value: HMMA}
basis: source-semantics
evidence:
  - before: results/static/sm_90/cutile/mla/flash_mla/v0/b1/static
    after: results/static/sm_90/cutile/mla/flash_mla/v1/b1/static
    metric: registers
violated_by: [flash_mla v0]
since: 2026-11-21
---

## When to apply

Text about thread blocks.

## Mechanism

Text.

## Affected metrics

Text.

## Implementation

Text.

## Performance evidence

{{ evidence }}

## Generalization

Text.

## Pitfalls

Text.

## Interactions

Text.
"""

TEXT_TEXT = """---
title: Regimes
---

They cross at {{ analysis mla flops-crossing }}.

## Devices

{{ analysis mla devices }}
"""

ENTRY = """### {version}: {verdict}

#### What changed

Text.

#### Why

Text.

#### Predicted

Text.

#### Falsified by

Text.

#### Measured

{{{{ measured }}}}

#### Insights

Text.

#### Next

Text.
"""
DEVLOG_TEXT = (
    "---\ntitle: flash_mla\n---\n\nIntroduction.\n\n"
    + ENTRY.format(version="v0", verdict="a baseline")
    + "\n"
    + ENTRY.format(version="v1", verdict="negative: nothing gained")
)


def make_record(
    version: str = "v0",
    *,
    design: str = "flash_mla",
    target: str = "static/sm_90",
    mode: str = "static",
    problem: dict[str, Any] | None = None,
    static: dict[str, Any] | None = None,
    tiling: dict[str, Any] | None = None,
    stage: dict[str, Any] | None = None,
    outcome: dict[str, Any] | None = None,
    slug: str = "b1",
    sources: dict[str, str] | None = None,
    toolchain: dict[str, str] | None = None,
    device: dict[str, Any] | None = None,
) -> evidence.Record:
    """A record with one stage ``main``, 200 registers and 3 spills in v0, 168 and none in v1."""
    facts = {
        "kernel": "flash_mla",
        "arch": target.removeprefix("static/") if "sm_" in target else "sm_90",
        "registers": 200 if version == "v0" else 168,
        "spill_loads": 2 if version == "v0" else 0,
        "spill_stores": 1 if version == "v0" else 0,
        "mma_path": "HMMA" if version == "v0" else "HGMMA",
        "mma_ops": 2,
        "threads_per_block": 128,
        "shared_bytes": 1024,
        "remarks": [
            {"kind": kind, "count": count, "file": "x.py", "line": 1, "category": "memory",
             "message": "said"}
            for kind, count in (("missed", 2), ("failed", 1), ("passed", 4))
        ],
    } | (static or {})  # fmt: skip
    passed = {
        "status": "passed",
        "stages": [
            {
                "name": "main",
                "kernel": "flash_mla",
                "tiling": {"tile_m": 64, "tile_n": 64, "num_worker_warps": None, **(tiling or {})},
                "grid": [2, 99],
                "static": CutileFacts.model_validate(facts),
                **(stage or {}),
            }
        ],
    } | (outcome or {})
    return evidence.Record.model_validate(
        {
            "kernel": {
                "language": "cutile-dsl",
                "package": "cutile",
                "layer": "mla",
                "design": design,
                "version": version,
                "sources": SOURCES if sources is None else sources,
            },
            "problem": {"b": 1, "h": 128, "s": 16, "t": 4096, "causal": False, "dtype": "bf16"}
            | (problem or {}),
            "slug": slug,
            "mode": mode,
            "target": target,
            "device": device,
            "toolchain": {"cuda-tile": "1.7.0"} if toolchain is None else toolchain,
            "outcome": passed,
            "run": "tree",
            "time": datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC),
        }
    )


H200 = {
    "key": "nvidia-h200-sxm",
    "name": "NVIDIA H200",
    "arch": "sm_90",
    "driver": "580.159",
}
DURATION = {"median_us": 10.0, "min_us": 9.0, "max_us": 12.0, "samples": 20}
PROTOCOL = {
    "timer": "cuda-events",
    "warmup_runs": 3,
    "bench_runs": 20,
    "l2_flush": True,
    "graph_replay": True,
}


def timed_record(version: str = "v1", **changes: Any) -> evidence.Record:
    """A record of a run on an H200 with counters and checked cases."""
    stage = {
        "duration": DURATION,
        "counters": {
            "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 40.0,
            "dram__bytes_read.sum": 60.0,
            "dram__bytes_write.sum": 4.0,
            "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": 3.0,
        },
    }
    outcome = {
        "total": DURATION,
        "protocol": PROTOCOL,
        "correctness": {
            "status": "passed",
            "against": "torch",
            "tolerance": 0.004,
            "cases": [
                {"problem": {}, "max_relative_error": 0.001, "bytes_loaded": 10, "mma_flops": 7},
                {"problem": {}, "max_relative_error": 0.002, "bytes_loaded": 20},
            ],
        },
    }
    defaults = {"target": "nvidia-h200-sxm", "mode": "event", "device": H200}
    return make_record(version, **{**defaults, "stage": stage, "outcome": outcome, **changes})


def failed_record(version: str = "v0", **changes: Any) -> evidence.Record:
    """A record of a run that failed."""
    record = make_record(version, **changes)
    return record.model_copy(update={"outcome": evidence.Failed(error="it broke")})


@dataclass
class Tree:
    """A checkout to break."""

    root: Path

    def write(self, name: str, text: str | bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def read(self, name: str) -> str:
        return (self.root / name).read_text(encoding="utf-8")

    def replace(self, name: str, old: str, new: str) -> None:
        text = self.read(name)
        assert old in text, f"{old!r} is not in {name}"
        self.write(name, text.replace(old, new))

    def record(self, record: evidence.Record, name: str | None = None) -> str:
        """Write a record in place of one of the same key; returns its address."""
        run = runs.started(record)
        kernel = record.kernel
        own = f"results/{run.folder}/{kernel.version}-{record.slug}-{record.mode}.json"
        self.write(name or own, run.text())
        return evidence.address(record)

    def forget(self, address: str) -> None:
        """Remove a record."""
        *folder, version, slug, mode = address.split("/")
        self.root.joinpath(*folder, f"{version}-{slug}-{mode}.json").unlink()

    def catalogue(self) -> Catalogue:
        return load_all(self.root, designs=DESIGNS, is_stale=is_stale)

    def lint(self) -> list[Any]:
        return lint(self.catalogue())

    def line(self, name: str, marker: str) -> int:
        """Line of the first occurrence of ``marker`` in a file."""
        text = self.read(name)
        assert marker in text, f"{marker!r} is not in {name}"
        return text[: text.index(marker)].count("\n") + 1


def is_stale(record: evidence.Record) -> bool:
    return record.kernel.sources != SOURCES


def plant(root: Path) -> Tree:
    """Write the clean checkout."""
    tree = Tree(root)
    tree.write(PAGE, PAGE_TEXT)
    tree.write(ANTI, ANTI_TEXT)
    tree.write(TEXT, TEXT_TEXT)
    tree.write(DEVLOG, DEVLOG_TEXT)
    tree.record(make_record("v0"))
    tree.record(make_record("v1"))
    return tree
