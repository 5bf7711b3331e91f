"""Time and memory of the site build, as it is and with many more records and patterns.

Left out of default runs; ``pytest -m benchmark -n0 -s tests/benchmarks/test_bench_site.py``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice, product
from pathlib import Path

import pytest

from mla_var3 import evidence
from mla_var3.evidence import Duration, Passed, Protocol
from mla_var3.runtime import registry
from tests.site import site_tree

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]

#: What is added to the checkout's own.
RECORDS, PATTERNS = 1500, 300
#: Records to which a build must stay linear.
LINEAR_TO = 1500
#: Limits on two cores: seconds of a cold build, of one with figures cached, and megabytes of its
#: largest process. With all of ``RECORDS`` and ``PATTERNS`` these were 43 s, 47 s and 587 MB on
#: 2026-11-22, and with ``LINEAR_TO`` records 25 s.
COLD, CACHED, MEGABYTES = 90, 90, 700
#: The checkout's own build, 839 pages: 26 s cold on 2026-11-22, on a machine with nothing else to
#: do. A minute is what it may take.
OWN_COLD, OWN_CACHED = 60, 60


@dataclass(frozen=True)
class Build:
    """What a build took.

    Attributes:
        seconds: Wall time.
        cpu: Seconds of all processors, which a busy machine changes little.
        megabytes: Most memory of one process.
        pages: HTML pages that it made.
    """

    seconds: float
    cpu: float
    megabytes: float
    pages: int


def build(tree: Path, site: Path) -> Build:
    """Build strictly, in a process of its own."""
    shutil.rmtree(site, ignore_errors=True)
    log = site.with_suffix(".log")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(site)]
    environment = {
        **os.environ,
        "HYPERMLA_ROOT": str(tree),
        "NO_MKDOCS_2_WARNING": "1",
        "DISABLE_MKDOCS_2_WARNING": "true",
    }
    started = time.perf_counter()
    with log.open("w") as output:
        child = subprocess.Popen(command, cwd=tree, env=environment, stdout=output, stderr=output)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - started
    assert child.returncode == 0, log.read_text()
    made = sum(1 for _ in site.rglob("*.html"))
    cpu = usage.ru_utime + usage.ru_stime
    print(f"{made} pages: {seconds:.0f} s, {cpu:.0f} s of processors", flush=True)
    return Build(seconds, cpu, usage.ru_maxrss / 1024, made)


def count_records(tree: Path) -> int:
    """Records of a tree."""
    return sum(len(evidence.records_of(path)) for path in evidence.files(tree / "results"))


def add_records(tree: Path, count: int) -> None:
    """So many static and timed records of every version, at problems that nobody ran."""
    sizes = product((1, 2, 4, 8, 16, 32, 64, 128), (512, 1024, 2048, 8192, 32768), (3, 5, 48))
    static = (
        evidence.find(
            tree / "results", language=v.language, design=v.design, version=v.version, mode="static"
        )
        for v in registry.versions()
    )
    # A kernel of one arch has failed records too: those of the others.
    passed = ((r for r in found if isinstance(r.outcome, Passed)) for found in static)
    templates = [first for found in passed if (first := next(found, None))]
    assert templates
    for template, (s, t, b) in islice(_spread(templates, sizes), count):
        problem = {**template.problem, "b": b, "s": s, "t": t}
        made = template.model_copy(update={"problem": problem, "slug": f"b{b}-s{s}-t{t}-bf16"})
        if (s + t + b) % 2:
            made = timed(made, 50.0 + 7 * s + t / 100 + b)
        evidence.write(made, tree / "results")


def _spread(
    templates: list[evidence.Record], sizes: Iterable[tuple[int, int, int]]
) -> Iterator[tuple[evidence.Record, tuple[int, int, int]]]:
    """Every version at one problem after the other, so that few records reach all versions."""
    return ((template, size) for size in sizes for template in templates)


def timed(record: evidence.Record, time_us: float) -> evidence.Record:
    """A record as a run on a GPU would leave it."""
    assert isinstance(record.outcome, Passed)
    total = Duration(median_us=time_us, min_us=time_us, max_us=time_us, samples=50)
    protocol = Protocol(
        timer="cuda-events", warmup_runs=3, bench_runs=50, l2_flush=True, graph_replay=True
    )
    outcome = record.outcome.model_copy(update={"total": total, "protocol": protocol})
    key = "nvidia-h200-sxm"
    device = evidence.Device(key=key, name="NVIDIA H200", arch="sm_90", driver="580.159.04")
    return record.model_copy(
        update={"outcome": outcome, "mode": "event", "target": key, "device": device, "run": "r"}
    )


def add_patterns(tree: Path) -> None:
    """Copies of the shared optimizations, each with an id of its own and neighbours."""
    folder = tree / "knowledge" / "optimizations"
    originals = sorted(folder.glob("*.md"))
    for number, original in enumerate(islice(cycle(originals), PATTERNS), 100):
        text = original.read_text()
        id_ = f"o{number}-copy"
        near = ", ".join(f"o{100 + (number + step) % PATTERNS}-copy" for step in (1, 2, 3))
        text = re.sub(r"^id: .*$", f"id: {id_}", text, count=1, flags=re.MULTILINE)
        text = re.sub(r"^interacts: .*$", f"interacts: [{near}]", text, count=1, flags=re.MULTILINE)
        (folder / f"{id_}.md").write_text(text)


def test_build(tmp_path):
    tree, site = tmp_path / "tree", tmp_path / "site"
    tree.mkdir()
    site_tree.fetch_assets()
    site_tree.copy(tree)
    own = build(tree, site), build(tree, site)
    held = count_records(tree)
    add_records(tree, LINEAR_TO - held)
    added = count_records(tree) - held
    grown = build(tree, site)
    per_record = {
        f"first {held}": own[0].cpu / held,
        f"next {added}": (grown.cpu - own[0].cpu) / added,
    }
    add_records(tree, RECORDS)
    add_patterns(tree)
    many = build(tree, site), build(tree, site)
    figures = {
        name: {
            "seconds": round(b.seconds, 1),
            "CPU": round(b.cpu, 1),
            "MB": round(b.megabytes),
            "pages": b.pages,
        }
        for name, b in zip(
            ("own, cold", "own, cached", "many, cold", "many, cached"), (*own, *many), strict=True
        )
    }
    print(json.dumps({"CPU seconds per record": per_record} | figures, indent=1))
    # Were a part quadratic, the next records would cost more than the first did on average.
    assert added > 0.9 * (LINEAR_TO - held)
    assert per_record[f"next {added}"] < per_record[f"first {held}"]
    assert many[0].pages - own[0].pages >= PATTERNS
    assert own[0].seconds < OWN_COLD
    assert own[1].seconds < OWN_CACHED
    assert many[0].seconds < COLD
    assert many[1].seconds < CACHED
    assert max(b.megabytes for b in (*own, *many)) < MEGABYTES
    # Work in step with the pages: one more, with its share of the records, costs some of them.
    per_page = (many[0].cpu - own[0].cpu) / (many[0].pages - own[0].pages)
    assert per_page < 4 * own[0].cpu / own[0].pages
