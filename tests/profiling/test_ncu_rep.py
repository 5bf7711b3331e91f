from __future__ import annotations

import importlib.util
import math
import os
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.errors import ToolchainError
from mla_var3.paths import repo_root
from mla_var3.profiling import ncu_rep
from mla_var3.profiling.ncu_rep import (
    Metric,
    load,
    plain_text,
    ptx_of,
    read,
    relative_targets,
)
from tests.profiling import reports

PTX = b"junk\1.version 9.4\0.target sm_90a\0\0.visible .entry k_1(\0)\0{\0ret;\0}\0\x7f\2more"


@pytest.fixture
def play(monkeypatch, tmp_path):
    """Play NVIDIA's module; gives a report that it is said to read."""

    def play(*actions, error=None):
        monkeypatch.setitem(sys.modules, "ncu_report", reports.module(*actions, error=error))
        monkeypatch.setattr(ncu_rep, "missing", lambda: None)
        monkeypatch.setattr(ncu_rep, "extras", lambda: None)
        path = tmp_path / "profile.ncu-rep"
        path.write_bytes(PTX)
        return path

    return play


class TestLoad:
    def test_metrics_with_unit_and_section(self, play):
        value = reports.Metric("dram__bytes.sum", 64, "byte")
        bad = [reports.Metric("x", math.nan), reports.Metric("t", "Prefer"),
               reports.Metric("none", None), reports.Metric("group:all", "a,b")]  # fmt: skip
        shown = [
            SimpleNamespace(order=lambda n=n: n, name=lambda title=title: title,
                            header_metrics=lambda: (value,), body_metrics=lambda: ())
            for n, title in ((30, "Memory"), (10, "Speed Of Light"))
        ]  # fmt: skip
        (launch,) = load(play(reports.action([value, *bad], sections=lambda: shown)))
        assert launch.metrics == (
            Metric("dram__bytes.sum", 64.0, "byte", "Speed Of Light"), Metric("t", "Prefer"),
            Metric("x", "nan"),
        )  # fmt: skip
        assert launch.value("dram__bytes.sum") == 64.0
        assert launch.value("t") is launch.value("absent") is None

    def test_instructions_count_from_the_first(self, play):
        each = {0x7F0010: 3, 0x7F0000: 5}
        metrics = [
            reports.Metric("inst_executed", 8, each=each),
            reports.Metric("samples", 1, each={0x7F0010: 2}),
            reports.Metric("of something else", 1, each={0: 9}),
        ]
        info = SimpleNamespace(file_name=lambda: "/far/away/k.py", line=lambda: 12)
        where = {0x7F0010: info}.get
        (launch,) = load(play(reports.action(metrics, source_info=where)))
        first, second = launch.instructions
        assert (first.offset, first.sass, first.ptx) == (0, "OP R0, 0x0", "add %r1;")
        assert (first.file, first.line, first.values) == ("", 0, {"inst_executed": 5.0})
        assert (second.offset, second.file, second.line) == (16, "k.py", 12)
        assert second.values == {"inst_executed": 3.0, "samples": 2.0}

    def test_rules_with_their_estimate(self, play):
        rules = [
            {"rule_identifier": "R", "section_identifier": "S",
             "rule_message": {"title": "T", "message": "see @section:X:the table@", "type": kind},
             **more}
            for kind, more in ((2, {"speedup_estimation": {"type": 2, "speedup": 7}}), (1, {}),
                               (3, {"speedup_estimation": {"type": 1, "speedup": 9}}))
        ]  # fmt: skip
        (launch,) = load(play(reports.action([], rule_results_as_dicts=lambda: rules)))
        whole, ok, unit = launch.advice
        assert (whole.kind, whole.speedup, whole.overall) == ("optimization", 7.0, True)
        assert (ok.kind, ok.speedup, ok.overall) == ("ok", None, False)
        assert (unit.kind, unit.speedup, unit.overall) == ("warning", 9.0, False)
        assert whole.message == "see the table"

    def test_sources_and_ptx(self, play):
        files = {"/far/away/k.py": "x = 1\n", "/far/away/empty.py": ""}
        (launch,) = load(play(reports.action([], "k_1", source_files=lambda: files)))
        assert launch.sources == {"k.py": "x = 1\n"}
        assert launch.ptx.splitlines()[0] == ".version 9.4"
        assert launch.ptx.endswith("ret;\n}\n")

    @pytest.mark.parametrize("error", [RuntimeError("bad"), OSError("bad"), ValueError("bad")])
    def test_a_refusal_is_one_sentence(self, play, error):
        with pytest.raises(ToolchainError, match=r"profile\.ncu-rep cannot be read by .*: bad"):
            load(play(error=error))

    def test_a_report_without_launches(self, play):
        with pytest.raises(ToolchainError, match="holds no launch"):
            load(play())


class TestRead:
    """In a process of its own."""

    @pytest.fixture
    def path(self, tmp_path, monkeypatch):
        """A report, and NVIDIA's module as a file that prints what it is asked."""
        monkeypatch.setattr(ncu_rep, "missing", lambda: None)
        path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
        monkeypatch.setenv("PYTHONPATH", path)
        report = tmp_path / "profile.ncu-rep"
        report.write_bytes(PTX)
        return report

    def test_launches_pass_from_process_to_process(self, path):
        (path.parent / "ncu_report.py").write_text(
            "from tests.profiling import reports\n"
            "found = reports.action([reports.Metric('dram__bytes.sum', 64, 'byte')], 'k_1')\n"
            "vars().update(vars(reports.module(found)))\n"
        )
        (launch,) = read(path)
        assert (launch.name, launch.value("dram__bytes.sum")) == ("k_1", 64.0)
        assert launch.ptx.startswith(".version")

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("import os\nos.kill(os.getpid(), 11)\n", "ncu_report ended with code -11"),
            ("def load_report(path):\n    raise OSError('torn')\n", "cannot be read by .*: torn"),
            ("raise ImportError('no library')\n", "cannot be loaded: no library"),
        ],
    )
    def test_a_module_that_fails_is_one_sentence(self, path, text, said):
        (path.parent / "ncu_report.py").write_text(text)
        with pytest.raises(ToolchainError, match=said):
            read(path)

    def test_without_the_module(self, path, monkeypatch):
        monkeypatch.setattr(ncu_rep, "missing", lambda: "it is nowhere")
        with pytest.raises(ToolchainError, match="cannot be read: it is nowhere"):
            read(path)


def test_a_report_of_this_checkout():
    if importlib.util.find_spec("ncu_report") is None:
        pytest.skip("ncu_report is not installed (mla_var3[gpu] brings it)")
    found = sorted((repo_root() / "out/profiles/ncu").glob("**/*.ncu-rep"))
    if not found:
        pytest.skip("out/ holds no report; --prof_type=ncu leaves one")
    launch = read(found[-1])[0]
    executed = sum(x.values["inst_executed"] for x in launch.instructions)
    assert executed == launch.value("smsp__inst_executed.sum")
    assert f".entry {launch.name}" in launch.ptx or not launch.ptx


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("plain", "plain"),
        ("a @section:LaunchStats:Launch Statistics@ b", "a Launch Statistics b"),
        ("@url:Guide:https://docs.nvidia.com/x#y@.", "Guide."),
        ("@source:k.py:655:k.py, line 656@", "k.py, line 656"),
        ("a@b", "a@b"),
    ],
)
def test_links_become_their_words(message, shown):
    assert plain_text(message) == shown


@given(st.integers(0, 2**47), st.integers(0, 1 << 20))
def test_targets_within_the_kernel_are_offsets(first, length):
    target = first + length // 2
    assert relative_targets(f"BRA {target:#x}", first, first + length) == f"BRA {length // 2:#x}"
    outside = f"CALL {first + length + 1:#x}"
    assert relative_targets(outside, first, first + length) == outside


@pytest.mark.parametrize(("name", "found"), [("k_1", True), ("k", False), ("k_12", False)])
def test_ptx_is_found_by_its_whole_name(name, found):
    assert bool(ptx_of(name, ncu_rep._PTX.findall(PTX))) == found


class TestModule:
    """Where NVIDIA's module is looked for."""

    @pytest.fixture
    def install(self, tmp_path, monkeypatch):
        """Play an Nsight Compute: the ncu on PATH, and its extras in some folder."""

        def install(ncu, extras, script="echo Version 2025.3.1.0"):
            path = tmp_path / ncu
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
            folder = tmp_path / extras / "extras/python"
            folder.mkdir(parents=True)
            (folder / "ncu_report.py").write_text("")
            monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}/usr/bin{os.pathsep}/bin")
            monkeypatch.setattr(ncu_rep, "INSTALLED", tmp_path / "opt")
            monkeypatch.setattr(ncu_rep.importlib.util, "find_spec", lambda name: None)
            return folder

        return install

    @pytest.mark.parametrize(
        ("ncu", "extras"),
        [
            ("nc/ncu", "nc"),
            ("nc/target/linux-x64/ncu", "nc"),
            ("cuda/bin/ncu", "opt/2025.3.1"),
            ("cuda/bin/ncu", "cuda/nsight-compute-2025.3.1"),
        ],
    )
    def test_beside_the_ncu_on_path(self, install, ncu, extras):
        folder = install(ncu, extras)
        assert ncu_rep.extras() == folder
        assert ncu_rep.missing() is None

    def test_another_version_is_not_taken(self, install):
        install("cuda/bin/ncu", "opt/2024.1.0")
        assert ncu_rep.extras() is None
        with pytest.raises(ToolchainError, match=r"cannot be read: .*mla_var3\[gpu\].*extras"):
            ncu_rep.module()

    @pytest.mark.parametrize("script", ["exit 1", "echo nothing"])
    def test_an_ncu_that_states_no_version(self, install, script):
        install("cuda/bin/ncu", "opt/2025.3.1", script)
        assert ncu_rep.extras() is None

    def test_the_installed_one_comes_first(self, monkeypatch):
        monkeypatch.setattr(ncu_rep.importlib.util, "find_spec", lambda name: object())
        assert ncu_rep.extras() is None
        assert ncu_rep.missing() is None

    def test_one_that_does_not_load(self, monkeypatch):
        monkeypatch.setattr(ncu_rep, "missing", lambda: None)
        monkeypatch.setattr(ncu_rep, "extras", lambda: None)
        monkeypatch.setitem(sys.modules, "ncu_report", None)
        with pytest.raises(ToolchainError, match="ncu_report cannot be loaded"):
            ncu_rep.module()
