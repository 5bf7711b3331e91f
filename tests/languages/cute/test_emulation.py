"""What a kernel's run on a CPU says of its sources."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mla_var3.gpuless.ptx import parse
from mla_var3.languages.cute import emulation
from mla_var3.paths import kernels_dir
from mla_var3.runtime.execution import Argued, Facts, recording

PTX = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry touch()
{
    .loc 1 12 0
    ret;
}
"""


def files(path: str) -> dict[int, str]:
    module = parse(emulation._named_here(f'{PTX}\n\t.file\t1 "{path}"\n'))
    return module.kernels["touch"].files


def test_a_source_is_named_as_it_lies_here_whoever_compiled_it() -> None:
    here = str(kernels_dir() / "cute_python" / "kit" / "head_loads.py")
    for checkout in ("/home/some/kernels/x", "/tmp/it's here", "/work"):
        for package in ("src/mla_var3/kernel", "kernels"):
            assert files(f"{checkout}/{package}/cute_python/kit/head_loads.py") == {1: here}


def test_sources_of_others_keep_their_names() -> None:
    for path in ("/elsewhere/kernels/cute_python/kit/absent.py", "/lib/cutlass/pipeline.py"):
        assert files(path) == {1: path}


@pytest.mark.parametrize(
    ("behind", "yes", "no"),
    [("@%p1 bra D;\nbra W;\nD:", "taken", "passed"), ("@!%p1 bra W;", "passed", "taken")],
)
def test_a_wait_asked_once_went_both_ways_where_its_first_answer_was_no(
    behind: str, yes: str, no: str
) -> None:
    here = kernels_dir() / "cute_python" / "kit" / "head_loads.py"
    wait = f"W: mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0;\n{behind}\n"
    registers = ".reg .pred %p<2>; .reg .b32 %r<2>;"
    text = PTX.replace(".loc 1 12 0", f"{registers}\n.loc 1 12 7\n{wait}")
    kernel = parse(f'{text}\n.file 1 "{here}"\n').kernel()
    ways: list[set[str]] = []
    for waited in (0, 1):
        taken, passed, asked = np.zeros((3, len(kernel.instructions)), np.int64)
        {"taken": taken, "passed": passed}[yes][1], asked[1] = 32, waited
        program = type("Program", (), {"kernel": kernel})()
        counts = SimpleNamespace(program=program, taken=taken, passed=passed, waited=asked)
        found: Facts = {}
        launch: Any = SimpleNamespace(counts=counts)
        emulation._add_ways(found, launch)
        ways += found.values()
    assert ways == [{yes}, {yes, no}]


@pytest.mark.parametrize("waits", [True, False])
def test_a_stage_that_begins_early_waits_before_it_reads_what_the_one_before_wrote(
    waits: bool,
) -> None:
    pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")
    import torch

    from .kernels_for_tests import Early, Scale

    x = torch.arange(32, dtype=torch.float32)
    between, y = torch.empty(32), torch.empty(32)
    with recording():
        first = emulation.execute("scale", Scale(32), (x, between, 3.0), (between,))
        second = emulation.execute("early", Early(waits), (between, y), (y,))
    assert torch.equal(y, 6 * x)
    assert not first.diagnostics
    assert [found.kind for found in second.diagnostics] == ([] if waits else ["global-race"])
    # Nobody knows of a launch before it where none is recorded.
    assert not emulation.execute("early", Early(waits), (between, y), (y,)).diagnostics


@pytest.mark.parametrize("ours", [True, False])
def test_only_who_argues_findings_of_anothers_source_may_leave_fences_releases_and_waits_out(
    ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")
    import torch

    from .kernels_for_tests import Scale

    models = []
    emulate = emulation.emulate

    def seen(*given: Any) -> Any:
        models.append(given[-1].model)
        return emulate(*given)

    monkeypatch.setattr(emulation, "emulate", seen)
    known = () if ours else (Argued("race", "another.py", 7, "not our source"),)
    x, y = torch.arange(32, dtype=torch.float32), torch.empty(32)
    assert not emulation.execute("scale", Scale(32), (x, y, 3.0), (y,), known).diagnostics
    (model,) = models
    left_out = {name for name, value in dataclasses.asdict(model).items() if value is False}
    asked = {
        "tensor_thread_sync", "loads_done_when_used", "commits_in_order",  # Of tensor memory.
        "relaxed_publishes", "arrivals_publish", "exit_drains", "lane_waits", "wgmma_rendezvous",
    }  # fmt: skip
    assert left_out == (asked if ours else set())
