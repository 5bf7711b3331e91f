"""A workload and a language that nobody named, and text that nobody trusts, planted in a copy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from generators.write.page import Page
from tests.generators.checking import see
from tests.site import site_tree

#: What every planted text carries.
MARKUP = "<script>alert(1)</script> <img src=x onerror=alert(1)>"

WORKLOAD = """
from dataclasses import dataclass, replace
from typing import ClassVar

from mla_var3.workloads.base import Cost, Problem, Regime, Workload, axis_metric, option


@dataclass(frozen=True, kw_only=True)
class SumProblem(Problem):
    covers: ClassVar[str] = "one sum"
    rows: int = option(8, "rows of the matrix", minimum=1)

    def prepare_inputs(self, device="cpu"):
        return self.random(device, (self.rows, 4))

    def reference_fn(self, *inputs):
        return {"y": inputs[0].float().sum(1)}

    def _algorithmic_flops_bytes(self, tiling=None):
        return Cost(4 * self.rows, 8 * self.rows)

    def check_plans(self):
        return [self]

    def shrunk(self):
        return replace(self, rows=2)


WORKLOAD = Workload(
    key="toysum", title="Toy sum", summary="Sums of rows.", problem=SumProblem, sweep="rows",
    compared=("rows", "dtype"), regimes=(Regime("tiny", "any", lambda p: True),),
    metrics=(axis_metric("toy_rows", "rows", "Rows of the matrix."),),
)
"""
LANGUAGE = """
class Toy:
    key, package, title = "toy-lang", "toy", "Toy language"
    archs, tools, hints, metrics = (), (), (), ()


LANGUAGE = Toy()
"""
KERNEL = f'''"""Adds rows: {MARKUP}."""

from dataclasses import dataclass
from typing import ClassVar

from mla_var3.runtime import KernelPlan, Tiling
from mla_var3.workloads.toysum import SumProblem


@dataclass(frozen=True, kw_only=True)
class Plan(SumProblem, KernelPlan):
    tiling_types: ClassVar = {{"toysum": Tiling}}

    def default_tiling(self, stage):
        return Tiling()

    def _autotune_configs(self):
        return {{"toysum": []}}

    def plan(self, *inputs):
        raise NotImplementedError
'''
RECORD = {
    "schema_version": 2,
    "kernel": {
        "language": "toy-lang", "package": "toy", "layer": "toysum", "design": "rowsum",
        "version": "v0", "sources": {},
    },
    "problem": {"dtype": "bf16", "rows": 8},
    "slug": "rows8-bf16",
    "mode": "disabled",
    "target": "cpu",
    "toolchain": {},
    "outcome": {
        "status": "passed",
        "correctness": {"status": "passed", "against": MARKUP, "tolerance": 0.004,
                        "cases": [{"problem": {"rows": 8}, "max_relative_error": 0.001}]},
        "stages": [{"name": MARKUP, "kernel": "rowsum", "tiling": {}, "grid": []}],
    },
    "time": "2026-11-21T00:00:00Z",
}  # fmt: skip
#: Makes the pages of the copy with the package of the copy, and prints them.
SCRIPT = """
import json
from generators import families as site
found = site.load()
pages = [p for p in site.all_pages(found) if p.path.endswith(".md")]
print(json.dumps({p.path: [p.content, list(p.nav)] for p in pages}))
"""


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _plant(tree: Path) -> None:
    package = tree / "src/mla_var3"
    _write(package / "workloads/toysum.py", WORKLOAD)
    _write(package / "languages/toylang/__init__.py", LANGUAGE)
    design = tree / "kernels/toy/toysum/rowsum"
    _write(tree / "kernels/toy/__init__.py", 'LANGUAGE = "toy-lang"\n')
    _write(tree / "kernels/toy/toysum/__init__.py", "")
    _write(design / "__init__.py", f'"""Sums rows. {MARKUP}"""\n')
    _write(design / "rowsum/__init__.py", "")
    _write(design / "rowsum/rowsum.py", KERNEL)
    folder = tree / "results/cpu/toy/toysum/rowsum/v0/rows8-bf16"
    _write(folder / "disabled.json", json.dumps(RECORD))
    pattern = tree / "knowledge/optimizations/o2-head-grouping.md"
    text = pattern.read_text()
    title = next(line for line in text.splitlines() if line.startswith("title: "))
    pattern.write_text(text.replace(title, f"title: {json.dumps('T ' + MARKUP)}"))
    device = tree / "knowledge/devices/nvidia-h200-sxm.toml"
    text = device.read_text()
    name = next(line for line in text.splitlines() if line.startswith("name = "))
    device.write_text(text.replace(name, f"name = {json.dumps('H200 ' + MARKUP)}"))


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Page]:
    tree = tmp_path_factory.mktemp("newcomers")
    site_tree.copy(tree)
    _plant(tree)
    paths = os.pathsep.join((str(tree / "src"), str(tree)))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tree, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": paths, "HYPERMLA_ROOT": str(tree)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    return {path: Page(path, content, nav=tuple(nav)) for path, (content, nav) in made.items()}


@pytest.mark.exhaustive
def test_a_workload_and_a_language_are_shown_with_no_change(planted):
    assert planted["kernels/toysum/index.md"].nav == ("Kernels", "Toy sum")
    version = planted["kernels/toysum/toy-lang/rowsum/v0.md"]
    assert version.nav == ("Kernels", "Toy sum", "Toy language", "rowsum", "v0")
    assert "Toy language compiles nothing." in version.content
    workload = str(planted["kernels/toysum/index.md"].content)
    assert "rows of the matrix" in workload
    assert "`tiny`" in workload
    assert "A time covers one sum." in workload
    assert "| rows=8 bf16 | passed | 1 |" in str(planted["results/cpu.md"].content)
    assert "rowsum" in str(planted["results/explorer.md"].content)
    assert "rowsum" in str(planted["index.md"].content)
    assert "--rows" in str(planted["reference/cli/toysum-toy-lang-rowsum.md"].content)


@pytest.mark.exhaustive
def test_no_planted_text_runs_on_any_page(planted):
    holders = set()
    for path, page in planted.items():
        if "alert(1)" not in str(page.content):
            continue
        seen = see(page)
        assert seen.scripts == [], path
        if "alert(1)" in seen.text:
            holders.add(path)
    assert holders >= {
        "kernels/index.md",
        "kernels/toysum/toy-lang/rowsum/index.md",
        "kernels/toysum/toy-lang/rowsum/v0.md",
        "catalogue/optimizations/o2-head-grouping.md",
        "devices/nvidia-h200-sxm.md",
        "results/index.md",
        "mla/nvidia-h200-sxm.md",
        "index.md",
    }
