"""Language ``cutile-dsl``: compiles and interprets cuTile kernels behind ``Language``."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mla_var3.evidence import Fingerprint, StaticFacts
from mla_var3.languages.base import Compiled, CompileJob, Language, Mutant, StageMetric, Tile
from mla_var3.languages.cutile.facts import CutileFacts
from mla_var3.languages.cutile.levers import LEVERS

if TYPE_CHECKING:
    from mla_var3.runtime.kernel import Kernel


def _refused(_: object, facts: StaticFacts | None) -> int | None:
    if not isinstance(facts, CutileFacts):
        return None
    failed = (r for r in facts.remarks if r.kind == "failed" and r.category == "memory")
    return sum(r.count for r in failed if "TMA load" in r.message)


def _missed(_: object, facts: StaticFacts | None) -> int | None:
    if not isinstance(facts, CutileFacts) or not facts.ok:
        return None
    return sum(r.count for r in facts.remarks if r.kind in ("missed", "failed"))


_KEY = "cutile-dsl"
_metric = functools.partial(StageMetric.of_fact, _KEY)


class _Cutile:
    key = _KEY
    package = "cutile"
    title = "cuTile DSL"
    archs: tuple[str, ...] = ("sm_90", "sm_100", "sm_120")
    tools: tuple[str, ...] = (
        "cuda-tile", "nvidia-cuda-tileiras", "nvidia-cuda-nvcc", "nvidia-nvvm",
    )  # fmt: skip
    hints: tuple[str, ...] = ("occupancy", "num_ctas", "num_worker_warps")
    cpu_builds: int | None = None
    metrics: tuple[StageMetric, ...] = (
        StageMetric(
            "num_worker_warps", "", "tiling", None, "stages[].tiling.num_worker_warps",
            "Warps asked for the worker groups; 0 when left to the compiler.",
            lambda tiling, _: _hint(tiling, "num_worker_warps"),
        ),
        StageMetric(
            "num_ctas", "", "tiling", None, "stages[].tiling.num_ctas",
            "Blocks asked for a cluster; 0 when left to the compiler.",
            lambda tiling, _: _hint(tiling, "num_ctas"),
        ),
        StageMetric(
            "occupancy_hint", "", "tiling", None, "stages[].tiling.occupancy",
            "Resident blocks asked of the compiler; 0 when left to it.",
            lambda tiling, _: _hint(tiling, "occupancy"),
        ),
        StageMetric(
            "missed_remarks", "", "static", "lower",
            "stages[].static.remarks[kind=missed or failed]",
            "Optimizations that the compiler says it missed or failed at.", _missed,
        ),
        StageMetric(
            "tma_refused", "", "static", "lower", "stages[].static.remarks[kind=failed]",
            "Loads that the compiler says it could not give to TMA.", _refused,
        ),
        _metric("ring_depth", "", None, "Steps in flight: places of the deepest ring of loads."),
        _metric("wgmma_waits", "instructions", None, "Waits for warpgroup multiplications."),
        _metric("waits_per_wgmma", "", "lower", "Waits for warpgroup multiplications, per one."),
    )  # fmt: skip
    levers: Mapping[str, str] = LEVERS

    def known_archs(self) -> tuple[str, ...]:
        from mla_var3.languages.cutile import toolchain

        return toolchain.known_archs()

    def cannot_compile(self, arch: str) -> str | None:
        return None

    def refuses(self, kernel: Kernel, arch: str) -> str | None:
        return None

    def cannot_execute(self) -> str | None:
        return None

    def compile_many(
        self,
        jobs: Sequence[CompileJob],
        *,
        workers: int | None = None,
        cache_dir: Path | None = None,
        timeout: float | None = None,
        progress: Callable[[CompileJob, StaticFacts], None] = lambda _job, _facts: None,
    ) -> list[Compiled]:
        from mla_var3.languages.cutile import compile as compiler

        return compiler.compile_jobs(
            jobs, workers=workers, cache_dir=cache_dir, timeout=timeout, progress=progress
        )

    def fingerprints(
        self,
        jobs: Sequence[CompileJob],
        *,
        workers: int | None = None,
        cache_dir: Path | None = None,
        progress: Callable[[CompileJob, StaticFacts], None] = lambda _job, _facts: None,
    ) -> list[Fingerprint | str]:
        from mla_var3.languages.cutile import fingerprint

        return fingerprint.fingerprints(jobs, cache_dir)

    def call(self, texts: Sequence[str]) -> str | None:
        return None

    def switches(self, kernel: Kernel) -> Mapping[str, object]:
        from mla_var3.languages.cutile import fingerprint

        return fingerprint.switches(kernel)

    def build(self, kernel: Kernel) -> str:
        return f"{kernel.name} {dict(self.switches(kernel))}"

    def tiles(self, kernel: Kernel, source: Path, sizes: Mapping[str, int]) -> tuple[Tile, ...]:
        from mla_var3.languages.cutile import tiles

        return tiles.tiles(source, kernel.function_name, sizes)

    def grid(self, kernel: Kernel) -> tuple[int, ...]:
        return kernel.grid()

    def is_cooperative(self, kernel: Kernel) -> bool:
        return False

    def mutants(self, source: str) -> Iterator[Mutant]:
        from mla_var3.languages.cutile.mutants import Deriver

        return Deriver(source).mutants()

    def choices(self) -> None:
        return None

    def worker_warps(self, tiling: Mapping[str, object]) -> int | None:
        asked = tiling.get("num_worker_warps")
        return asked if isinstance(asked, int) else None

    def launches(self, kernel: Kernel) -> re.Pattern[str]:
        # The compiler adds a suffix to the function's name, which may be another's beginning.
        return re.compile(rf"{re.escape(kernel.function_name)}(_Kt|$)")

    def failures(self) -> tuple[type[BaseException], ...]:
        import cuda.tile as ct

        return (ct.TileError,)


def _hint(tiling: object, name: str) -> object:
    # A hint that is left to the compiler is stored as null; 0 makes it comparable.
    return tiling.get(name) or 0 if isinstance(tiling, dict) else None


LANGUAGE: Language = _Cutile()
