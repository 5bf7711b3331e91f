from __future__ import annotations

import dataclasses

import pytest
from factories import correctness, costs_as, duration, passed, record, stage, static_facts

from mla_var3 import devices, evidence, roofline
from mla_var3.paths import out_dir
from mla_var3.profiling.report import (
    NOTHING,
    _digits,
    attained,
    correctness_text,
    limits,
    render,
    render_one,
)
from mla_var3.runtime import costs

H100, H200 = "nvidia-h100-sxm", "nvidia-h200-sxm"


@pytest.fixture(autouse=True)
def cost(monkeypatch):
    """A cost model that is easily followed."""
    costs_as(monkeypatch)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "not checked in this run"),
        (correctness(), "passed against torch fp32: 1 problem(s), largest relative error 1.0e-03 "
                        "(allowed 4e-03)"),
        (correctness("failed", message="o is wrong", cases=[evidence.CheckedCase(problem={})]),
         "failed against torch fp32: 1 problem(s), largest relative error not finite "
         "(allowed 4e-03); o is wrong"),
    ],
)  # fmt: skip
def test_correctness(found, said):
    assert correctness_text(found) == said


def of(*stages, **changes) -> evidence.Record:
    return record(outcome=passed(stages=list(stages), **changes))


class TestLimits:
    def test_worst_first_with_the_facts(self):
        facts = static_facts(
            registers=168, stack_bytes=824, spill_loads=6, mma_path="HMMA", instructions=7
        )
        one = stage(static=facts)
        spills, path, occupancy, side = limits(of(one), one)
        assert spills == (
            "register spills: 168 registers and 824 bytes of stack, 6 local loads and 0 local "
            "stores in the code"
        )
        assert "HMMA" in path
        assert occupancy.startswith("one block per SM, by registers (12 warps)")
        # 10^9 FLOP over 10^6 bytes against 989.5 TFLOP/s over 4800 GB/s.
        assert side == (
            "bound by tensor throughput on nvidia-h200-sxm: 1000 FLOP/B against a ridge of 206"
        )

    def test_several_blocks_per_sm_are_no_limit(self):
        one = stage(static=static_facts(registers=32, threads_per_block=128, warps_per_block=4))
        assert [x for x in limits(of(one), one) if "block" in x] == []

    def test_without_a_device_nothing_is_worked_out(self):
        one = stage()
        assert limits(record(outcome=passed(stages=[one]), target="static/sm_75"), one) == []


def test_a_reference_is_named_after_what_attained_it():
    said = attained(costs.reference(of(stage())))
    assert said.startswith("700 W at 0.778 pJ/FLOP and 79 pJ/byte (fit of ")
    plain = dataclasses.replace(devices.load("nvidia-h200-sxm").ceilings(), power=None)
    said = attained(roofline.predict(10**9, 0, plain))
    assert said.startswith("694 TFLOPS")
    assert "GEMM" in said
    assert attained(costs.bound(of(stage()))) == ""


class TestRender:
    def full(self, **changes):
        remark = evidence.Remark(
            file="k.py", line=7, kind="missed", category="memory", message="a|b"
        )
        return of(
            stage("a", static=static_facts(remarks=(remark,)), duration=duration(4.0),
                  grid=[2, 3]),
            stage("b", static=static_facts()),
            **changes,
        )  # fmt: skip

    def test_all_there_is(self):
        text = render_one(self.full(total=duration(10.0)))
        assert text.startswith("## static/sm_90, mode static\n")
        assert "Correctness: passed against torch fp32" in text
        assert "No kernel that does this work can beat the bound" in text
        joules = "700 W at 0.778 pJ/FLOP and 79 pJ/byte ("
        assert f"| nvidia-h200-sxm | 1.0 | tensor throughput | 1.5 | {joules}" in text
        assert "Measured: median 10.0 us (min 9.0, max 12.0, 50 runs), 9.89 times the bound" in text
        tiles = "tile_m=64 num_worker_warps=8"
        assert f"| a | 2x3 | {tiles} | 1 | 1 | 1000 | 4.0 | 1.0 |" in text
        assert f"| b | 1x2 | {tiles} | 1 | 1 | 1000 |  | 1.0 |" in text
        assert "| a | 168 | 0 | 0/0 | 1024 | HGMMA | 3/1 | 1 (registers) |" in text
        assert "- **a**\n    - one block per SM" in text
        assert "| a | k.py:7 | missed | a&#124;b |" in text

    def test_brief_is_without_remarks_and_other_devices(self):
        assert H100 in render_one(self.full())
        text = render_one(self.full(), brief=True)
        assert H200 in text
        assert H100 not in text
        assert "Compiler remarks" not in text

    def test_what_is_not_known_has_no_heading(self):
        text = render_one(record(outcome=passed(correctness=None), target="static/sm_75"))
        for heading in ("Bound", "What the compiler", "Compiler remarks", "median us", "bound us"):
            assert heading not in text
        assert "Correctness: not checked in this run." in text

    @pytest.mark.parametrize(
        ("stage_name", "where"), [(None, ""), ("combine", " in stage combine")]
    )
    def test_a_failure_is_its_error(self, stage_name, where):
        failed = evidence.Failed(error="out of memory", stage=stage_name)
        text = render_one(record(outcome=failed))
        assert text == f"## static/sm_90, mode static\n\n**Failed{where}**: out of memory\n"

    def test_a_skip_is_its_reason(self):
        text = render_one(record(outcome=evidence.Skipped(reason="no compiler for it")))
        assert "**Skipped**: no compiler for it" in text

    @pytest.mark.parametrize(
        ("git", "said"),
        [
            (evidence.Git(commit="a" * 40, dirty=True), "Commit aaaaaaaaaaaa with changes.\n"),
            (evidence.Git(commit="a" * 40, dirty=False), "Commit aaaaaaaaaaaa.\n"),
            (evidence.Git(commit="a" * 40, dirty=None), "Commit aaaaaaaaaaaa, changes unknown.\n"),
            (None, "Commit unknown.\n"),
        ],
    )
    def test_the_whole(self, git, said):
        found = [record(git=git), record(target="static/sm_100")]
        text = render(found, ["try this", "try that"], [out_dir() / "x.cubin"])
        assert text.startswith(
            "# flash_mla v0\n\nLanguage cutile-dsl, workload mla, problem b=64, causal=False, "
            f"dtype=bf16.\n{said}"
        )
        assert text.index("## static/sm_90") < text.index("## static/sm_100")
        assert "## What to try next\n\n1. try this\n2. try that\n" in text
        assert "/x.cubin`\n" in text

    def test_without_steps_and_files_there_are_no_such_headings(self):
        text = render([record()])
        assert "What to try next" not in text
        assert "Files" not in text

    def test_where_nothing_was_found_it_says_so(self):
        assert f"## What to try next\n\n{NOTHING}\n" in render([record()], [])

    def test_what_is_known_stands_first(self):
        text = render([record()], known=[("Measured", "1 us of a_b")])
        assert text.index("- **Measured**: 1 us of a&#95;b") < text.index("## static/sm_90")


@pytest.mark.parametrize(
    ("rate", "said"), [(0.0833, "0.083"), (0.5, "0.5"), (9.96, "10"), (206.1, "206")]
)
def test_a_small_intensity_is_not_said_to_be_0(rate, said):
    assert _digits(rate) == said
