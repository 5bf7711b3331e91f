"""Mode static from plan to report, on the cheapest kernel and one arch."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from mla_var3 import devices, front, records
from mla_var3.errors import (
    DeviceFigureError,
    PlanError,
    TilingError,
    ToolchainError,
    UnknownNameError,
)
from mla_var3.languages.cutile import toolchain
from mla_var3.profiling import static_profile
from mla_var3.profiling.static_profile import (
    DEFAULT_ARCHS,
    device_for,
    devices_of,
    parse_archs,
    static_profile_plan,
)
from mla_var3.runtime import CtKernel, registry
from mla_var3.runtime.check import check_plan

VERSION = registry.find("flash_attention")
PLAN = VERSION.plan_class()(b=2, h=16, s=2, t=256, d=64)
SLUG = PLAN.slug()


def profile(plan=PLAN, version=VERSION, **options):
    told = []
    result = static_profile_plan(
        plan, version=version, **{"archs": ["sm_90"], "progress": told.append, **options}
    )
    return result, told


class TestArchs:
    def test_the_default_and_lists(self):
        assert parse_archs(None) == DEFAULT_ARCHS
        assert parse_archs("sm_90") == ("sm_90",)
        assert parse_archs(" sm_100, sm_90 ,sm_100,") == ("sm_100", "sm_90")

    @pytest.mark.parametrize("text", ["", ",", "sm_9", "sm_90,sm_91", "SM_90"])
    def test_others_are_refused_with_what_there_is(self, text):
        with pytest.raises(UnknownNameError, match=r"unknown arch .*known: .*sm_90"):
            parse_archs(text)


class TestDevices:
    def test_the_asked_one_where_it_is_of_the_arch(self):
        h100 = devices.load("nvidia-h100-sxm")
        assert device_for("sm_90", h100) is h100
        assert device_for("sm_90", None).key == "nvidia-h200-sxm"
        assert device_for("sm_100", h100).key == "nvidia-b200"
        assert device_for("sm_75", h100) is None

    def test_all_of_an_arch_with_known_ceilings(self):
        found = devices_of("sm_90", "bf16")
        assert "nvidia-h200-sxm" in [d.key for d in found]
        assert {d.sm for d in found} == {"sm_90"}
        for device in found:
            device.ceilings("bf16")
        assert devices_of("gfx942", "bf16") == []

    def test_one_whose_ceilings_are_unknown_is_left_out(self, monkeypatch):
        ceilings = devices.Device.ceilings

        def unknown(self, dtype):
            if self.key == "nvidia-h20":
                raise DeviceFigureError("UNKNOWN")
            return ceilings(self, dtype)

        before = [d.key for d in devices_of("sm_90", "bf16")]
        monkeypatch.setattr(devices.Device, "ceilings", unknown)
        assert [d.key for d in devices_of("sm_90", "bf16")] == [
            k for k in before if k != "nvidia-h20"
        ]

    def test_without_a_device_nothing_is_resolved(self):
        assert static_profile._resolved(PLAN, "sm_75", None) is PLAN


class TestProfile:
    def test_everything_is_written_and_a_second_run_changes_nothing(self, root, tmp_path):
        result, told = profile()
        assert result.ok
        (made,) = result.records
        (path,) = result.record_paths
        assert path == root / f"results/static/sm_90/flash_attention/v0/{SLUG}/static.json"
        assert records.read(path) == made
        (stage,) = made.outcome.stages
        assert stage.static["registers"] > 0
        assert stage.static["arch"] == "sm_90"
        assert stage.static["mma_path"] == "HGMMA"
        assert {p.device for p in made.outcome.predictions} == {
            d.key for d in devices_of("sm_90", "bf16")
        }
        assert made.outcome.correctness.status == "passed"
        assert made.outcome.correctness.cases[0].problem["t"] == 200
        folder = root / "out/flash_attention/v0/static"
        inner = folder / SLUG / "sm_90"
        assert json.loads((inner / "params.json").read_text()) == PLAN.problem()
        tiling = json.loads((inner / "tiling/flash_attention.json").read_text())
        assert tiling == dataclasses.asdict(PLAN.tiling("flash_attention"))
        suffixes = {p.suffix for p in (inner / "compiled/flash_attention").iterdir()}
        assert {".cubin", ".sass"} <= suffixes
        assert all(p.is_file() for p in result.paths)
        text = result.report.read_text()
        assert result.report == folder / "report.md"
        for said in ("# flash_attention v0", "HGMMA", "What limits each stage", "Files"):
            assert said in text
        assert any(t.startswith("interpreting flash_attention v0 at b1-") for t in told)
        assert any("registers" in t for t in told)

        before = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in result.record_paths}
        again, told = profile()
        assert again.records[0].facts() == made.facts()
        assert {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in before} == before
        assert f"unchanged {path}" in told

        elsewhere = tmp_path / "elsewhere"
        moved, _ = profile(out_dir=elsewhere / "out", results=elsewhere / "results")
        assert all(p.is_relative_to(elsewhere) for p in moved.paths)

    def test_tuning_compiles_the_configured_tilings_and_takes_the_best(self, monkeypatch):
        result, told = profile(retune=True, tune_max_iters=2)
        (stage,) = result.records[0].outcome.stages
        assert any("chose tile_m=" in t for t in told)
        (chosen,) = [t for t in told if "chose" in t]
        assert f"tile_m={stage.tiling['tile_m']} tile_n={stage.tiling['tile_n']}" in chosen

    def test_a_tiling_of_the_users_is_kept_and_checked(self):
        mine = {"flash_attention": dataclasses.replace(PLAN.tiling("flash_attention"), tile_n=32)}
        result, told = profile(dataclasses.replace(PLAN, tilings=mine), retune=True)
        assert result.records[0].outcome.stages[0].tiling["tile_n"] == 32
        assert not any("chose" in t for t in told)

    def test_without_a_best_tiling_the_default_stays(self, monkeypatch):
        nothing = SimpleNamespace(pruned=[(PLAN.tiling("flash_attention"), "spills")], best=None)
        monkeypatch.setattr(static_profile.rank, "rank", lambda *_, **__: nothing)
        told = []
        assert static_profile._retuned(PLAN, "sm_90", 2, told.append) == PLAN
        assert told == ["sm_90 flash_attention: pruned tile_m=64 tile_n=64: spills"]

    def test_tilings_that_differ_by_arch_are_each_checked(self, monkeypatch):
        tiles = {"sm_90": 64, "sm_100": 32}

        def tuned(plan, arch, *_args):
            tiling = dataclasses.replace(plan.tiling("flash_attention"), tile_n=tiles[arch])
            return dataclasses.replace(plan, tilings={"flash_attention": tiling})

        checked = []
        monkeypatch.setattr(static_profile, "_retuned", tuned)
        monkeypatch.setattr(
            static_profile, "check_plan", lambda plan: checked.append(plan) or check_plan(plan)
        )
        profile(archs=list(tiles), retune=True)
        assert [p.tiling("flash_attention").tile_n for p in checked] == [64, 32]
        checked.clear()
        profile(archs=list(tiles))
        assert len(checked) == 1

    def test_a_wrong_kernel_is_a_failed_record_without_numbers(self, monkeypatch, root):
        monkeypatch.setattr(CtKernel, "__call__", lambda self: dict(self.output_tensors))
        result, _ = profile()
        assert not result.ok
        outcome = records.read(result.record_paths[0]).outcome
        assert isinstance(outcome, records.Failed)
        assert outcome.error.startswith("o: relative error nan")
        assert "**Failed**" in result.report.read_text()
        assert all(p.is_file() for p in result.paths)

    def test_an_interrupt_leaves_no_record_and_nothing_half_written(self, monkeypatch, root):
        def interrupted(_plan):
            raise KeyboardInterrupt

        monkeypatch.setattr(static_profile, "check_plan", interrupted)
        with pytest.raises(KeyboardInterrupt):
            profile()
        assert not [p for p in root.glob("**/*") if p.is_file()]

    def test_open_sizes_are_resolved_for_each_arch(self, monkeypatch):
        version = registry.find("mla_var6_plus", "v1")
        plan = version.plan_class()(s=16)
        found = {}
        for arch in DEFAULT_ARCHS:
            found[arch] = static_profile._resolved(plan, arch, None).n
        assert len(set(found.values())) == 3
        small = dataclasses.replace(plan, n=7)
        assert static_profile._resolved(small, "sm_90", None).n == 7
        with pytest.raises(PlanError, match="n=9999 exceeds t=4096"):
            static_profile._resolved(dataclasses.replace(plan, n=9999), "sm_90", None)


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
        assert err.startswith("error: package ")
        assert err.count("\n") == 1
        assert not [p for p in root.glob("**/*") if p.is_file()]


def test_a_full_disk_ends_with_2_and_no_half_written_file(root):
    """The whole command against a folder that takes no files."""
    body = (
        "import errno, sys\n"
        "from mla_var3 import front\n"
        "from mla_var3.runtime import paths\n"
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
