"""Libraries that are peers in workload mla: values where they run here, reasons where not."""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from pathlib import Path

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mla_var3 import evidence
from mla_var3.errors import NotExecutableError, PlanError
from mla_var3.profiling import recording
from mla_var3.profiling.job import Job
from mla_var3.profiling.settings import Settings
from mla_var3.runtime import registry
from mla_var3.runtime.library_kernel import Requirement

from .attention_cases import PROBLEMS, assert_correct, machine, make
from .fake_peers import FlashInferWrapper, FlashMla, module, standing_in

TILEGYM = Path(os.environ.get("TILEGYM_DIR", "/nowhere")).is_dir()
TRITON = importlib.util.find_spec("triton") is not None
TILEGYM = TILEGYM or importlib.util.find_spec("tilegym") is not None


@settings(max_examples=8)
@given(problem=PROBLEMS)
def test_torch_over_the_decompressed_cache(problem):
    assert_correct(make("torch_sdpa_mla", "v0", **problem))


@pytest.mark.skipif(not TILEGYM, reason="no TileGym, and TILEGYM_DIR names no checkout")
@pytest.mark.parametrize("s", [1, 3])
def test_tilegym_in_the_interpreter(s):
    assert_correct(make("tilegym_mla", "v0", b=2, h=16, s=s, t=300))


def test_tilegym_takes_no_mask():
    with pytest.raises(PlanError, match="takes no mask"):
        make("tilegym_mla", "v0", causal=True).validate()


@settings(max_examples=8)
@given(problem=PROBLEMS)
def test_flashmla_gets_its_layouts(problem):
    assume(not problem["causal"] or problem["s"] <= problem["t"])
    with standing_in():
        assert_correct(make("deepseek_flash_mla", "v0", **problem))


@settings(max_examples=8)
@given(problem=PROBLEMS, lengths=st.sampled_from([None, "ragged", "one"]))
def test_flashmla_gets_pages_and_lengths(problem, lengths):
    problem = {**problem, "lengths": lengths}
    shortest = min(make("deepseek_flash_mla", "v1", **problem).drawn())
    assume(not problem["causal"] or problem["s"] <= shortest)
    with standing_in():
        assert_correct(make("deepseek_flash_mla", "v1", **problem))


def test_flashmla_gets_no_rows_without_keys():
    with pytest.raises(PlanError, match="s=5 exceeds the shortest sequence's 3 keys"):
        make("deepseek_flash_mla", "v1", causal=True, s=5, t=3).validate()


def test_flashmla_takes_pages_of_64_alone():
    with pytest.raises(PlanError, match="page=32: FlashMLA takes 64 alone"):
        make("deepseek_flash_mla", "v1", page=32).validate()


def test_pages_are_handed_on_where_they_are():
    problem = make("deepseek_flash_mla", "v1", b=2, h=16, t=100)
    inputs = problem.prepare_inputs()
    bound = problem.plan(*inputs).input_tensors
    assert bound["cache"].data_ptr() == inputs[2].data_ptr()
    assert bound["cache"].shape == (4, 64, 1, 576)


@settings(max_examples=8)
@given(problem=PROBLEMS)
def test_flashinfer_gets_its_layouts(problem):
    assume(not problem["causal"] or problem["s"] <= problem["t"])
    with standing_in():
        assert_correct(make("flashinfer_mla", "v0", **problem))


@pytest.mark.parametrize("design", ["flash_attention_3_mla", "tokenspeed_mla"])
@settings(max_examples=8)
@given(problem=PROBLEMS)
def test_other_peers_get_their_layouts(design, problem):
    assume(not problem["causal"] or problem["s"] <= problem["t"])
    with standing_in():
        assert_correct(make(design, "v0", **problem))


def test_dense_attention_gets_its_layout():
    for causal, dtype in ((False, "bf16"), (True, "fp16")):
        with standing_in():
            problem = {"b": 2, "h": 3, "s": 5, "t": 70, "d": 64, "causal": causal, "dtype": dtype}
            assert_correct(make("flash_attention_3", "v0", **problem))


@pytest.mark.parametrize(
    ("design", "fields", "said"),
    [
        ("flash_attention_3_mla", {"p": 128}, "p=128: FlashAttention-3 takes up to 64"),
        ("flash_attention_3_mla", {"causal": True, "s": 5, "t": 3}, "s=5 exceeds t=3: FlashAtt"),
        ("tokenspeed_mla", {"k": 256}, "k=256: TokenSpeed-MLA takes 512 alone"),
        ("tokenspeed_mla", {"h": 256}, "h=256: TokenSpeed-MLA takes up to 128 heads"),
        ("tokenspeed_mla", {"causal": True, "s": 5, "t": 3}, "s=5 exceeds t=3: TokenSpeed-MLA"),
    ],
)
def test_other_peers_refuse_what_they_do_not_take(design, fields, said):
    with pytest.raises(PlanError, match=said):
        make(design, "v0", **fields).validate()


@pytest.mark.parametrize(
    ("design", "module", "how"),
    [
        ("flash_attention_3_mla", "flash_attn_interface", "flash-attention#subdirectory=hopper"),
        ("flash_attention_3", "flash_attn_interface", "flash-attention#subdirectory=hopper"),
        ("tokenspeed_mla", "tokenspeed_mla", "pip install tokenspeed-mla"),
    ],
)
def test_an_absent_peer_says_how_to_install_it(monkeypatch, design, module, how):
    monkeypatch.setitem(sys.modules, module, None)
    problem = make(design, "v0", b=1, h=16, s=1, t=64)
    bound = problem.plan(*problem.prepare_inputs())
    with pytest.raises(NotExecutableError, match=f"{module} is absent.*{how}"):
        bound.launch()


def test_flashinfer_is_planned_once(monkeypatch):
    monkeypatch.setattr(FlashInferWrapper, "plans", 0)
    problem = make("flashinfer_mla", "v0", b=2, h=16, t=70)
    with standing_in():
        bound = problem.plan(*problem.prepare_inputs())
        first, second = bound(), bound()
    assert FlashInferWrapper.plans == 1
    assert torch.equal(first["o"], second["o"])


def test_flashinfer_refuses_rows_without_keys():
    with pytest.raises(PlanError, match="s=5 exceeds t=3: FlashInfer leaves rows"):
        make("flashinfer_mla", "v0", causal=True, s=5, t=3).validate()


def test_flashmla_makes_one_schedule_for_all_calls():
    peer = FlashMla()
    problem = make("deepseek_flash_mla", "v0", b=2, h=16, t=70)
    with standing_in(peer.module):
        bound = problem.plan(*problem.prepare_inputs())
        first, second = bound(), bound()
    assert peer.schedules == 1
    assert torch.equal(first["o"], second["o"])


@pytest.mark.skipif(not TRITON, reason="Triton is not installed")
@settings(max_examples=6)
@given(problem=PROBLEMS)
def test_triton_in_its_interpreter(problem):
    assert_correct(make("triton_mla", "v0", **{**problem, "s": min(problem["s"], 8)}))


@pytest.mark.parametrize("sizes", [(1, 128, 1, 32768), (32, 128, 16, 4096), (2, 3, 1, 70)])
def test_pieces_of_triton_cover_the_keys_and_fill_the_chip_once(sizes):
    b, h, s, t = sizes
    plan = make("triton_mla", "v0", b=b, h=h, s=s, t=t, machine=machine(sm_count=132))
    assert (plan.pieces - 1) * plan.piece < t <= plan.pieces * plan.piece
    assert plan.piece % 64 == 0
    assert plan.pieces == 1 or b * plan.row_tiles * plan.pieces <= 132


def test_triton_imported_for_the_other_device_is_refused(monkeypatch):
    functions = types.SimpleNamespace(zeros=object())
    fake = module("triton", language=functions, runtime=types.SimpleNamespace(JITFunction=object))
    folder = "mla_var3.kernel.library.mla.triton_mla.triton_mla"
    monkeypatch.setitem(sys.modules, "triton", fake)
    monkeypatch.setitem(sys.modules, f"{folder}.device", module("device"))
    plan = make("triton_mla", "v0", b=1, h=16, t=64)
    with pytest.raises(NotExecutableError, match=r"the other device.*TRITON_INTERPRET=1"):
        plan.plan(*plan.prepare_inputs())()


def test_whole_pages_are_the_cache_itself():
    problem = make("deepseek_flash_mla", "v0", b=2, h=16, t=128)
    bound = problem.plan(*problem.prepare_inputs())
    cache, table = bound.input_tensors["cache"], bound.input_tensors["table"]
    assert cache.shape == (4, 64, 1, 576)
    assert table.tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"k": 256}, "k=256: FlashMLA takes 512 alone"),
        ({"p": 32}, "p=32: FlashMLA takes 64 alone"),
        ({"causal": True, "s": 5, "t": 3}, "s=5 exceeds t=3: FlashMLA leaves rows"),
    ],
)
def test_flashmla_refuses_what_it_does_not_take(fields, said):
    with pytest.raises(PlanError, match=said):
        make("deepseek_flash_mla", "v0", **fields).validate()


def test_flashmla_absent_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "flash_mla", None)
    problem = make("deepseek_flash_mla", "v0", b=1, h=16, t=64)
    bound = problem.plan(*problem.prepare_inputs())
    with pytest.raises(NotExecutableError, match=r"flash_mla is absent.*deepseek-ai/FlashMLA"):
        bound.launch()


def test_flashmla_says_that_it_needs_a_gpu():
    problem = make("deepseek_flash_mla", "v0", b=1, h=16, t=64)
    with pytest.raises(NotExecutableError, match="has no CPU path: it needs a GPU"):
        problem.plan(*problem.prepare_inputs())()


def test_an_absent_library_says_why_and_how_to_get_it(monkeypatch):
    needs = Requirement("no_such_library", "pip install no-such", checkout="NO_SUCH_DIR")
    with pytest.raises(NotExecutableError) as caught:
        needs.load()
    assert str(caught.value) == (
        "no_such_library is absent: No module named 'no_such_library'; install it with: "
        "pip install no-such, or let NO_SUCH_DIR name a checkout"
    )


def test_a_checkout_is_found_by_its_variable(monkeypatch, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/found_by_a_variable.py").write_text("ANSWER = 42")
    monkeypatch.setenv("FOUND_DIR", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    needs = Requirement("found_by_a_variable", "nothing", checkout="FOUND_DIR")
    assert needs.load().ANSWER == 42


def test_an_import_that_fails_is_an_absent_library(monkeypatch, tmp_path):
    (tmp_path / "breaks_on_import.py").write_text("raise RuntimeError('no driver')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(NotExecutableError, match="breaks_on_import is absent: no driver"):
        Requirement("breaks_on_import", "nothing").load()


def test_a_library_tells_its_version(monkeypatch, tmp_path):
    folder = tmp_path / "told_by_metadata-1.2.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: told-by-metadata\nVersion: 1.2\n"
    )
    (folder / "top_level.txt").write_text("told_by_metadata\n")
    (tmp_path / "told_by_module.py").write_text("__version__ = '3.4'")
    monkeypatch.syspath_prepend(tmp_path)
    assert Requirement("told_by_metadata.part", "nothing").version() == {"told-by-metadata": "1.2"}
    module = Requirement("told_by_module", "nothing")
    assert module.version() == {}  # Not imported: nothing was called.
    module.load()
    assert module.version() == {"told_by_module": "3.4"}


@pytest.mark.parametrize(
    ("version", "origin", "said"),
    [
        ("1.0.0", '{"vcs_info": {"vcs": "git", "commit_id": "9241ae3ef9bac614"}}', "1.0.0+9241ae3"),
        ("1.0.0+9241ae3", '{"vcs_info": {"commit_id": "ffffffffff"}}', "1.0.0+9241ae3"),
        ("1.0.0", '{"url": "file:///a.whl", "archive_info": {}}', "1.0.0"),
    ],
)
def test_a_library_installed_from_a_repository_tells_its_commit(
    monkeypatch, tmp_path, version, origin, said
):
    folder = tmp_path / "from_a_repository-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: from-a-repository\nVersion: {version}\n"
    )
    (folder / "top_level.txt").write_text("from_a_repository\n")
    (folder / "direct_url.json").write_text(origin)
    monkeypatch.syspath_prepend(tmp_path)
    assert Requirement("from_a_repository", "nothing").version() == {"from-a-repository": said}


def test_a_record_states_the_librarys_version(monkeypatch):
    monkeypatch.setattr(Requirement, "version", lambda self: {self.module: "9.9"})
    plan = make("deepseek_flash_mla", "v0")
    outcome = evidence.Failed(error="none")
    made = recording.make(
        Job(registry.find("deepseek_flash_mla", "v0"), plan, None, Settings()),
        "event",
        "any",
        outcome,
    )
    assert made.toolchain["flash_mla"] == "9.9"
    assert set(make("torch_sdpa_mla", "v0").libraries()) == set()
