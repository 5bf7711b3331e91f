from __future__ import annotations

import dataclasses
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.app import counts
from mla_var3.app.counts import QUANTITIES, Compared, Row, Table, counted, instructions, main, read
from mla_var3.emulator.options import Options
from mla_var3.errors import PlanError, ToolchainError, UsageError
from mla_var3.paths import repo_root
from mla_var3.profiling import replay
from mla_var3.profiling.job import Job
from mla_var3.profiling.ncu_rep import Metric, Profiled
from mla_var3.profiling.settings import Settings
from mla_var3.runtime import registry
from tests.emulator.kernels import GEMM, MIRROR
from tests.profiling import reports


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_what_agrees_is_within_two_percent_of_the_hardware(emulated, hardware):
    row = Row(quantity="q", counter="c", emulated=emulated, counted=hardware)
    assert row.agrees == (abs(emulated - hardware) <= 0.02 * hardware)
    assert math.isinf(row.difference) == (hardware == 0 != emulated)


class TestCounted:
    def test_metrics_are_summed(self):
        metrics = (Metric("x_a.sum", 2.0), Metric("x_b.sum", 3.0), Metric("x_c.sum", "n/a"),
                   Metric("y.sum", 9.0))  # fmt: skip
        assert counted(Profiled("k", metrics), r"x_\w+\.sum") == 5

    def test_opcodes_are_whole_words(self):
        found = Profiled("k", (), opcodes={"HGMMA": 4.0, "QGMMA": 2.0, "HGMMAX": 9.0})
        assert counted(found, "opcode [HQIB]GMMA") == 6
        assert counted(Profiled("k", ()), "opcode BAR") == 0

    def test_of_the_report_of_an_h200(self):
        launch, by_name = reports.gemm(), {q.name: q.counters for q in QUANTITIES}
        assert counted(launch, by_name["FLOPs of the tensor cores"]) == 2 * 512**3
        assert counted(launch, by_name["wgmma instructions"]) == 2048
        assert counted(launch, by_name["bytes stored by TMA"]) == 2 * 512**2


class TestEmulated:
    def of(self, kernel, **options):
        _, done = kernel.run(options=Options(counting="full", **options))
        return {q.name: q.emulated(done.counts) for q in QUANTITIES}

    def test_wgmma_and_tma(self):
        found = self.of(GEMM)
        assert found["FLOPs of the tensor cores"] == 2 * 64 * 64 * 256
        assert found["wgmma instructions"] == 4 * 4 * 4
        assert found["TMA loads"] == 8
        assert found["bytes loaded by TMA"] == 2 * 2 * 64 * 256

    def test_threads_of_their_own(self):
        found = self.of(MIRROR)
        # One more for each access that starts within a sector, which is where torch puts it.
        assert found["global sectors of threads"] >= 2 * 3 * 16
        assert found["TMA loads"] == found["bytes loaded by TMA"] == 0


def test_the_committed_table_holds_what_was_promised():
    """Bank conflicts, sectors and instructions of three kernels, within 2 % or with a reason."""
    table = read(repo_root() / counts.TARGET)
    promised = {q.name for q in QUANTITIES if q.why == "not known"}
    assert {
        "bank conflicts of shared memory",
        "global sectors of threads",
        "wgmma instructions",
    } < (promised)
    assert len(table.kernels) >= 3
    for one in table.kernels:
        assert one.same_ptx
        assert {row.quantity for row in one.rows} >= promised
        assert all(row.agrees or row.why not in ("", "not known") for row in one.rows)
        assert all(row.agrees for row in one.rows if row.quantity in promised)


@pytest.mark.parametrize("text", ["{", '{"version": "x"}', "[]"])
def test_a_file_that_is_no_table(text, tmp_path):
    path = tmp_path / "counts.json"
    path.write_text(text)
    with pytest.raises(ToolchainError, match=r"counts\.json"):
        read(path)


def test_ptx_is_compared_without_what_only_a_debugger_reads():
    one = '.file 1 "/a/k.py"\n.loc 1 5\nadd.s32  %r1, %r2; // here\n\nret;\n'
    other = '.file 1 "/b/k.py"\n\t.loc 1 9\n add.s32 %r1, %r2;\n$L__tmp3:\nret;'
    assert instructions(one) == instructions(other) == ["add.s32 %r1, %r2;", "ret;"]
    assert instructions("ret;") != instructions("bra L;")


class TestMain:
    @pytest.fixture
    def folder(self, tmp_path, monkeypatch):
        version = registry.find("hopper_gemm", "v1")
        plan = version.plan_class()(m=64, n=64, k=64)
        replay.write(tmp_path, Job(version, plan, None, Settings()))
        # As today's kernel is called: the report is of an older one.
        today = dataclasses.replace(
            reports.gemm(), name=reports.gemm().name.replace("hopper_gemm_v1", "gemm", 1)
        )
        monkeypatch.setattr(counts.ncu_rep, "read", lambda path: [today])
        return tmp_path

    def test_a_table_keeps_other_kernels(self, folder, monkeypatch, capsys):
        listing = [SimpleNamespace(parts=("stmatrix", "sync"))]
        warps = np.array([1024])
        kept = np.zeros(1, np.int64)
        played = SimpleNamespace(
            program=SimpleNamespace(kernel=SimpleNamespace(instructions=listing)), warps=warps,
            boxes=kept, sectors=kept, conflicts=kept, tensor_flops=2 * 512**3,
            bytes={"global read": kept, "global write": kept},
        )  # fmt: skip
        monkeypatch.setattr(counts, "_emulated", lambda name, kernel: (played, reports.gemm().ptx))
        out = folder / "counts.json"
        other = Compared(kernel="a v0", problem="p", same_ptx=True, rows=[])
        out.write_text(Table(kernels=[other]).model_dump_json())
        assert main(["--out", str(out), str(folder)], "counts") == 0
        first, second = read(out).kernels
        assert first == other
        assert (second.kernel, second.problem) == ("hopper_gemm v1", "m64-n64-k64-bf16")
        assert second.same_ptx
        rows = {row.quantity: row for row in second.rows}
        assert rows["stmatrix instructions"].agrees
        assert rows["wgmma instructions"].why == "not known"
        said = capsys.readouterr().out
        assert "stmatrix instructions: 1,024 emulated, 1,024 counted\n" in said
        assert "wgmma instructions: 0 emulated, 2,048 counted  -100.0%" in said

    def test_a_report_of_another_kernel(self, folder, monkeypatch):
        monkeypatch.setattr(counts.ncu_rep, "read", lambda path: [Profiled("other", ())])
        with pytest.raises(ToolchainError, match="hopper_gemm v1: the report holds no launch of"):
            main([str(folder)], "counts")

    def test_a_language_that_is_not_emulated(self, folder, monkeypatch):
        version = registry.find("mla_var6_plus", "v0")
        plan = version.plan_class()(b=1, h=16, s=2, t=70, k=64, p=16, d=32, n=30)
        replay.write(folder, Job(version, plan, None, Settings()))
        monkeypatch.setattr(counts.ncu, "longest", lambda found, pattern: found[0])
        with pytest.raises(PlanError, match="cutile-dsl is not emulated; allowed is cute-dsl"):
            main([str(folder)], "counts")

    def test_no_folder(self):
        with pytest.raises(UsageError, match=r"FOLDER\.\.\. must be given; see counts --help"):
            main([], "counts")


def test_the_committed_table_names_no_path():
    assert "/" not in json.dumps(
        [[one.kernel, one.problem] for one in read(repo_root() / counts.TARGET).kernels]
    )
