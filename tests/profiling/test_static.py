"""Mode static from plan to report, on the cheapest kernel and one arch."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from mla_var3 import devices, evidence, front, languages
from mla_var3.errors import (
    NotExecutableError,
    PlanError,
    TilingError,
    ToolchainError,
    UnknownNameError,
)
from mla_var3.languages.cutile import toolchain
from mla_var3.languages.cutile.facts import CutileFacts
from mla_var3.profiling import static
from mla_var3.profiling.job import Job
from mla_var3.profiling.settings import Settings
from mla_var3.profiling.static import device_for, parse_archs, resolved, static_profile_plan
from mla_var3.runtime import registry
from mla_var3.runtime.check import check_plan
from mla_var3.runtime.ct_kernel import CtKernel

VERSION = registry.find("flash_attention")
CUTILE = languages.find(VERSION.language)
PLAN = VERSION.plan_class()(b=2, h=16, s=2, t=256, d=64)
SLUG = PLAN.slug()
KERNEL = f"cutile/mla/flash_attention/v0/{SLUG}"


def profile(plan=PLAN, version=VERSION, **options):
    told = []
    result = static_profile_plan(
        plan, version=version, **{"archs": ["sm_90"], "progress": told.append, **options}
    )
    return result, told


class TestArchs:
    def test_the_default_and_lists(self):
        assert parse_archs(None, "cutile-dsl") == CUTILE.archs
        assert parse_archs("sm_90", "cutile-dsl") == ("sm_90",)
        assert parse_archs(" sm_100, sm_90 ,sm_100", "cutile-dsl") == ("sm_100", "sm_90")

    @pytest.mark.parametrize("text", ["", ",", "sm_9", "sm_90,sm_91", "SM_90"])
    def test_others_are_refused_with_what_there_is(self, text):
        with pytest.raises(UnknownNameError, match=r"unknown arch .*known: .*sm_90"):
            parse_archs(text, "cutile-dsl")


class TestDevices:
    def test_the_asked_one_where_it_is_of_the_arch(self):
        h100 = devices.load("nvidia-h100-sxm")
        assert device_for("sm_90", h100) is h100
        assert device_for("sm_90", None).key == "nvidia-h200-sxm"
        assert device_for("sm_100", h100).key == "nvidia-b200"
        assert device_for("sm_75", h100) is None

    def test_without_a_device_nothing_is_resolved(self):
        assert resolved(PLAN, "sm_75", None) is PLAN


class TestProfile:
    @pytest.mark.slow
    def test_everything_is_written_and_a_second_run_changes_nothing(self, root, tmp_path):
        result, told = profile()
        assert result.ok
        (made,) = result.records
        (path,) = result.record_paths
        assert path.parent == root / "results/static/sm_90/cutile/mla/flash_attention"
        assert evidence.records_of(path)[-1].facts() == made.facts()
        (stage,) = made.outcome.stages
        assert stage.static.registers > 0
        assert stage.static.arch == "sm_90"
        assert stage.static.mma_path == "HGMMA"
        assert made.outcome.correctness.status == "passed"
        assert (
            made.outcome.correctness.cases[0].problem["t"] == PLAN.t
        )  # The asked size, being small
        folder = result.report.parent
        assert folder.parent == root / "out/profiles/static" / KERNEL
        inner = folder / "sm_90"
        assert json.loads((inner / "params.json").read_text()) == PLAN.problem()
        tiling = json.loads((inner / "tiling/attention.json").read_text())
        assert tiling == dataclasses.asdict(PLAN.tiling("attention"))
        suffixes = {p.suffix for p in (inner / "compiled/attention").iterdir()}
        assert {".cubin", ".sass"} <= suffixes
        assert all(p.is_file() for p in result.paths)
        text = result.report.read_text()
        assert result.report == folder / "report.md"
        assert "<svg" in (folder / "report.html").read_text()
        for said in ("# flash_attention v0", "HGMMA", "What limits each stage", "Files"):
            assert said in text
        assert any(t.startswith("running flash_attention v0 on the CPU at b1-") for t in told)
        assert any("registers" in t for t in told)

        before = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in result.record_paths}
        again, told = profile()
        assert again.records[0].facts() == made.facts()
        assert {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in before} == before
        assert f"unchanged {path}" in told

        elsewhere = tmp_path / "elsewhere"
        moved, _ = profile(out_dir=elsewhere / "out", results=elsewhere / "results")
        assert all(p.is_relative_to(elsewhere) for p in moved.paths)

    @pytest.mark.slow
    def test_tuning_compiles_the_configured_tilings_and_takes_the_best(self, monkeypatch):
        result, told = profile(retune=True, tune_max_iters=2)
        (stage,) = result.records[0].outcome.stages
        assert any("chose tile_m=" in t for t in told)
        (chosen,) = [t for t in told if "chose" in t]
        assert f"tile_m={stage.tiling['tile_m']} tile_n={stage.tiling['tile_n']}" in chosen

    def test_a_tiling_of_the_users_is_kept_and_checked(self):
        mine = {"attention": dataclasses.replace(PLAN.tiling("attention"), tile_n=32)}
        result, told = profile(dataclasses.replace(PLAN, tilings=mine), retune=True)
        assert result.records[0].outcome.stages[0].tiling["tile_n"] == 32
        assert not any("chose" in t for t in told)

    def test_without_a_best_tiling_the_default_stays(self, monkeypatch):
        nothing = SimpleNamespace(pruned=[(PLAN.tiling("attention"), "spills")], best=None)
        monkeypatch.setattr(static.ranking, "rank", lambda *_, **__: nothing)
        told = []
        assert static.retuned(Job.of(PLAN, Settings(progress=told.append)), "sm_90") == PLAN
        assert told == ["sm_90 attention: pruned tile_m=64 tile_n=64: spills"]

    @pytest.mark.slow
    def test_tilings_that_differ_by_arch_are_each_checked(self, monkeypatch):
        tiles = {"sm_90": 64, "sm_100": 32}

        def tuned(job, arch):
            tiling = dataclasses.replace(job.plan.tiling("attention"), tile_n=tiles[arch])
            return dataclasses.replace(job.plan, tilings={"attention": tiling})

        checked = []
        monkeypatch.setattr(static, "retuned", tuned)
        monkeypatch.setattr(
            static, "check_plan", lambda plan: checked.append(plan) or check_plan(plan)
        )
        profile(archs=list(tiles), retune=True)
        assert [(p.tiling("attention").tile_n, p.t == PLAN.t) for p in checked] == [
            (64, False), (64, True), (32, False), (32, True),
        ]  # fmt: skip
        checked.clear()
        profile(archs=list(tiles))
        assert [p.t == PLAN.t for p in checked] == [False, True]

    def test_a_wrong_kernel_is_a_failed_record_without_numbers(self, monkeypatch, root):
        monkeypatch.setattr(CtKernel, "__call__", lambda self: dict(self.output_tensors))
        result, _ = profile()
        assert not result.ok
        outcome = evidence.records_of(result.record_paths[0])[-1].outcome
        assert isinstance(outcome, evidence.Failed)
        assert outcome.error.startswith("o: relative error nan")
        assert "**Failed**" in result.report.read_text()
        assert all(p.is_file() for p in result.paths)

    def test_an_interrupt_leaves_no_record_and_nothing_half_written(self, monkeypatch, root):
        def interrupted(_plan):
            raise KeyboardInterrupt

        monkeypatch.setattr(static, "check_plan", interrupted)
        with pytest.raises(KeyboardInterrupt):
            profile()
        assert not [p for p in root.glob("**/*") if p.is_file()]

    def test_open_sizes_are_resolved_for_each_arch(self, monkeypatch):
        version = registry.find("mla_var6_plus", "v1")
        plan = version.plan_class()(s=16)
        found = {}
        for arch in CUTILE.archs:
            found[arch] = resolved(plan, arch, None).n
        assert len(set(found.values())) > 1
        small = dataclasses.replace(plan, n=7)
        assert resolved(small, "sm_90", None).n == 7
        with pytest.raises(PlanError, match="n=9999 exceeds t=4096"):
            resolved(dataclasses.replace(plan, n=9999), "sm_90", None)


class TestWhatCannotBe:
    def test_an_arch_the_language_cannot_compile_for_is_skipped(self, monkeypatch):
        monkeypatch.setattr(
            type(CUTILE), "cannot_compile", lambda _, arch: "no" if arch == "sm_100" else None
        )
        result, told = profile(archs=["sm_90", "sm_100"])
        made, skipped = (evidence.records_of(path)[-1].outcome for path in result.record_paths)
        assert made.status == "passed"
        assert skipped == evidence.Skipped(reason="no")
        assert result.ok
        assert "sm_100 is skipped: no" in told

    def test_an_arch_that_nobody_asked_for_is_left_out(self, monkeypatch):
        monkeypatch.setattr(
            type(CUTILE), "cannot_compile", lambda _, arch: None if arch == "sm_90" else "no"
        )
        result, told = profile(archs=None)
        assert [record.target for record in result.records] == ["static/sm_90"]
        assert "sm_100 is skipped: no" in told

    def test_a_skip_replaces_no_record_that_was_made(self, monkeypatch):
        (path,) = profile()[0].record_paths
        before = path.read_bytes()
        monkeypatch.setattr(type(CUTILE), "cannot_compile", lambda *_: "no")
        profile()
        assert path.read_bytes() == before

    @pytest.mark.parametrize("where", ["language", "kernel"])
    def test_what_does_not_run_on_a_cpu_is_compiled_and_not_checked(self, where, monkeypatch):
        def refuse(_plan):
            raise NotExecutableError("needs a GPU")

        if where == "kernel":
            monkeypatch.setattr(static, "check_plan", refuse)
        else:
            monkeypatch.setattr(type(CUTILE), "cannot_execute", lambda _: "needs a GPU")
        result, told = profile()
        assert result.record.outcome.correctness is None
        assert result.record.outcome.stages[0].static.ok
        assert "not checked: needs a GPU" in told

    def test_a_kernel_that_does_not_compile_is_a_failed_record(self, monkeypatch):
        def refused(jobs, **_):
            facts = CutileFacts(kernel="k", arch="sm_90", error="no room")
            return [languages.Compiled(facts, {}) for _ in jobs]

        monkeypatch.setattr(static, "compile_jobs", refused)
        result, _ = profile()
        assert not result.ok
        assert result.record.outcome.error == "does not compile for sm_90: no room"
        assert result.record.outcome.stage == "attention"

    def test_a_language_that_compiles_nothing_says_what_to_type(self):
        plan = registry.find("torch_sdpa").plan_class()()
        with pytest.raises(ToolchainError, match=r"library compiles nothing.*=disabled --check"):
            static_profile_plan(plan)


class TestMissingToolchain:
    @pytest.fixture
    def no_package(self, monkeypatch):
        def missing(package):
            raise ToolchainError(f"package {package} is not installed")

        cached = (toolchain.find, toolchain.versions, toolchain.known_archs)
        for function in cached:
            function.cache_clear()
        monkeypatch.setattr(toolchain, "package_version", missing)
        yield
        for function in cached:
            function.cache_clear()

    def test_it_is_one_sentence_and_leaves_nothing(self, no_package, capsys, root):
        with pytest.raises(SystemExit) as exit_:
            front.run("mla_var3.app.cli:main", argv=[
                "flash_attention", "--b=1", "--t=64", "--prof_type=static",
            ])  # fmt: skip
        assert exit_.value.code == 2
        err = capsys.readouterr().err
        progress, said = err.splitlines()
        assert progress.startswith("· compiling")
        assert said.startswith("error: package ")
        assert not [p for p in root.glob("**/*") if p.is_file()]


@pytest.mark.slow
def test_a_full_disk_ends_with_2_and_no_half_written_file(root):
    """The whole command against a folder that takes no files."""
    body = (
        "import errno, sys\n"
        "from mla_var3 import front\n"
        "from mla_var3 import paths\n"
        "def full(*_): raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "paths.os.fsync = full\n"
        "front.run('mla_var3.app.cli:main')\n"
    )
    flags = ["--b=2", "--h=16", "--s=2", "--t=256", "--d=64", "--prof_type=static", "--arch=sm_90"]
    done = subprocess.run(
        [sys.executable, "-c", body, "flash_attention", *flags],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(root.glob("results/**/*.json"))
    assert not list(root.glob("**/.*.json*"))


def test_a_launch_that_cuda_refuses_is_told_before_the_compile(root):
    with pytest.raises(TilingError, match=r"has \d+ blocks on axis 1, allowed are 1 to 65535"):
        profile(dataclasses.replace(PLAN, b=65536, h=1, s=1, t=1))
    assert not list(root.iterdir())
