from __future__ import annotations

import pytest
from factories import correctness, duration, passed, prediction, record, stage, static_facts
from hypothesis import given
from hypothesis import strategies as st

from mla_var3 import records
from mla_var3.profiling.report import (
    correctness_text,
    limits,
    main_device,
    render,
    render_one,
    table,
    tiling_text,
)

H100, H200 = "nvidia-h100-sxm", "nvidia-h200-sxm"


@given(
    st.lists(st.text(st.characters(blacklist_categories=["Cc", "Cs", "Z"])), min_size=1, max_size=4)
)
def test_cells_cannot_break_a_table(cells):
    header, rule, row = table(cells, [cells]).split("\n")
    assert header == row
    assert rule == "| " + " | ".join(["---"] * len(cells)) + " |"
    assert row.replace("\\|", "").count("|") == len(cells) + 1


def test_a_tiling_names_what_is_set_and_hints_last():
    tiling = {"occupancy": 2, "num_ctas": None, "num_worker_warps": 8, "tile_m": 64, "tile_n": 32}
    assert tiling_text(tiling) == "tile_m=64 tile_n=32 occupancy=2 num_worker_warps=8"
    assert tiling_text({}) == ""


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "not checked in this run"),
        (correctness(), "passed against torch fp32: 1 problem(s), largest relative error 1.0e-03 "
                        "(allowed 4e-03)"),
        (correctness("failed", message="o is wrong", cases=[records.CheckedCase(problem={})]),
         "failed against torch fp32: 1 problem(s), largest relative error not finite "
         "(allowed 4e-03); o is wrong"),
    ],
)  # fmt: skip
def test_correctness(found, said):
    assert correctness_text(found) == said


@pytest.mark.parametrize(
    ("target", "device"),
    [
        ("static/sm_90", H200),
        ("static/sm_120", "nvidia-rtx-5090"),
        ("static/sm_75", None),
        (H100, H100),
    ],
)
def test_the_device_that_stands_for_a_target(target, device):
    assert main_device(record(target=target)) == device


class TestLimits:
    def test_nothing_is_known(self):
        assert limits(stage()) == []

    def test_worst_first_with_the_facts(self):
        facts = static_facts(
            registers=255, stack_bytes=824, spill_loads=6, mma_note="falls back to HMMA"
        )
        found = limits(stage(static=facts, predictions=[prediction()]))
        assert found == [
            "register spills: 255 registers and 824 bytes of stack, 6 local loads and 0 local "
            "stores in the code",
            "falls back to HMMA",
            "one block an SM, limited by registers (12 warps): latency must be hidden inside the "
            "block",
            "on nvidia-h200-sxm: DRAM bandwidth, 100 FLOP/B against a ridge of 162",
        ]

    @pytest.mark.parametrize(
        "occupancy", [None, {"blocks_per_sm": 2, "warps": 8, "limiter": "threads"}]
    )
    def test_two_blocks_an_sm_are_no_limit(self, occupancy):
        assert limits(stage(static=static_facts(occupancy=occupancy))) == []

    def test_one_device_may_be_asked_for(self):
        compute = prediction(H100).model_copy(update={"bound": "compute"})
        both = stage(predictions=[compute, prediction(H200)])
        assert len(limits(both)) == 2
        assert limits(both, H100) == [
            "on nvidia-h100-sxm: tensor throughput, 100 FLOP/B against a ridge of 162"
        ]


class TestRender:
    def full(self, **changes):
        remark = {"file": "k.py", "line": 7, "kind": "spill", "message": "a|b", "count": 1}
        outcome = passed(
            stages=[
                stage("a", static=static_facts(remarks=[remark]), duration=duration(4.0),
                      grid=[2, 3]),
                stage("b", static=static_facts(occupancy=None), bytes=0),
            ],
            predictions=[prediction(H100, 7.0), prediction(H200, 5.0)],
            **changes,
        )  # fmt: skip
        return record(outcome=outcome)

    def test_all_there_is(self):
        text = render_one(self.full(total=duration(10.0), roofline_fraction=0.5))
        assert text.startswith("## static/sm_90, mode static\n")
        assert "Correctness: passed against torch fp32" in text
        assert "| nvidia-h100-sxm | 694 | 4270 | measured | 7.0 | memory |" in text
        measured = "Measured: median 10.0 us (min 9.0, max 12.0, 50 runs), 50.0% of the roofline."
        assert measured in text
        assert "| a | 2x3 | tile_m=64 num_worker_warps=8 | 1 | 1 | 1000 | 4.0 |" in text
        assert "| b | 1x2 | tile_m=64 num_worker_warps=8 | 1 | 0 |  |  |" in text
        assert "| a | 168 | 0 | 0/0 | 1024 | HGMMA | 3/1 | 1 (registers) |" in text
        assert "| b | 168 | 0 | 0/0 | 1024 | HGMMA | 3/1 | ? (?) |" in text
        assert "- **a**\n    - one block an SM" in text
        assert "| a | k.py:7 | spill | a\\|b |" in text

    def test_brief_is_without_remarks_and_other_devices(self):
        text = render_one(self.full(), brief=True)
        assert H200 in text
        assert H100 not in text
        assert "Compiler remarks" not in text

    def test_what_is_not_known_has_no_heading(self):
        text = render_one(record(outcome=passed(correctness=None, total=duration())))
        for heading in ("Roofline", "What the compiler", "Compiler remarks", "median us", "of the"):
            assert heading not in text
        assert "Correctness: not checked in this run." in text
        assert "Measured: median 10.0 us (min 9.0, max 12.0, 50 runs).\n" in text

    @pytest.mark.parametrize(
        ("stage_name", "where"), [(None, ""), ("combine", " in stage combine")]
    )
    def test_a_failure_is_its_error(self, stage_name, where):
        failed = records.Failed(error="out of memory", stage=stage_name)
        text = render_one(record(outcome=failed))
        assert text == f"## static/sm_90, mode static\n\n**Failed{where}**: out of memory\n"

    def test_the_whole(self):
        dirty = records.Git(commit="abcdef0123456789", dirty=True)
        found = [record(git=dirty), record(target="static/sm_100")]
        text = render(found, ["try this", "try that"], ["out/x.cubin"])
        sources = found[0].kernel.source_sha256[:12]
        assert text.startswith(
            "# flash_mla v0\n\nLanguage cutile-dsl, layer mla, problem b=64, causal=False, "
            f"dtype=bf16.\nSources {sources}, commit abcdef012345 with changes.\n"
        )
        assert text.index("## static/sm_90") < text.index("## static/sm_100")
        assert "## What to try next\n\n1. try this\n2. try that\n" in text
        assert "## Files\n\n- `out/x.cubin`\n" in text

    def test_without_steps_and_files_there_are_no_such_headings(self):
        text = render([record()])
        assert "What to try next" not in text
        assert "Files" not in text
        assert "with changes" not in text
