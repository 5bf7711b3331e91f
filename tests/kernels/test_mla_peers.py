"""Libraries that are peers in workload mla: values where they run here, reasons where not."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings

from mla_var3.errors import NotExecutableError, PlanError
from mla_var3.runtime.library_kernel import Requirement

from .attention_cases import PROBLEMS, assert_correct, make

TILEGYM = Path(os.environ.get("TILEGYM_DIR", "/nowhere")).is_dir()
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
