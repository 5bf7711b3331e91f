from __future__ import annotations

import io
from types import SimpleNamespace

import pandas
import pytest
from factories import costs_as, duration, passed, record, stage, static_facts
from rich.console import Console

from mla_var3 import evidence, knowledge
from mla_var3.app import benching, commands, launcher
from mla_var3.errors import PlanError, ToolchainError, UnknownNameError, UsageError
from mla_var3.profiling import modes
from mla_var3.profiling.settings import ProfileResult
from mla_var3.runtime import registry
from mla_var3.workloads.mla import WORKLOAD


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


@pytest.fixture
def ran(monkeypatch):
    """Runs made up here; v1 fails."""
    calls = []

    def fake(mode, plan, *, version, **settings):
        calls.append((mode, version.key, plan, settings))
        outcome = passed(stages=[stage(static=static_facts())])
        if version.version == "v1":
            outcome = evidence.Failed(error="does not compile")
        made = record(version.qualified, version.version, outcome)
        return ProfileResult((made,))

    monkeypatch.setattr(launcher, "has_gpu", lambda: False)
    monkeypatch.setattr(modes, "run", fake)
    return calls


@pytest.fixture
def timed(monkeypatch):
    """Runs on a GPU; each version takes half of what the one before it took."""
    calls = []

    def fake(mode, plan, *, version, **settings):
        calls.append((mode, settings))
        outcome = passed(total=duration(8000.0 / 2 ** len(calls)))
        made = record(
            version.qualified, version.version, outcome, target="nvidia-h200-sxm", mode="event"
        )
        return ProfileResult((made,))

    monkeypatch.setattr(launcher, "has_gpu", lambda: True)
    monkeypatch.setattr(modes, "run", fake)
    return calls


def versions_of(design: str) -> list[str]:
    """Versions of a design as users type them, in order."""
    return [version.key for version in registry.designs()[design]]


def bench(*argv: str) -> int:
    return commands.main(["bench", *argv])


def test_every_version_on_the_asked_problem(ran, capsys):
    code = bench(
        "--designs=flash_mla, flash_attention", "--b=3", "--causal", "--arch=sm_90", "--verbose"
    )
    assert code == 1  # The two v1 fail.
    asked = [*versions_of("flash_mla"), *versions_of("flash_attention")]
    assert [key for _, key, _, _ in ran] == asked
    assert {(p.b, p.t, p.causal) for _, _, p, _ in ran} == {(3, 4096, True)}
    assert {(mode, settings["archs"]) for mode, _, _, settings in ran} == {("static", ("sm_90",))}
    out = capsys.readouterr().out
    assert f"[{len(asked)}/{len(asked)}] {asked[-1]}" in out
    assert "168r 0B HGMMA" in out
    assert "does not compile" in out
    assert "flash_mla: attention up to the latent output" in out


@pytest.mark.parametrize("layer", list(benching.workloads.workloads()))
def test_a_bare_bench_takes_all_designs_of_a_workload(layer, ran, capsys):
    bench(f"--workload={layer}")
    table = capsys.readouterr().out
    took = {key for _, key, _, _ in ran}
    every = {version.key for found in registry.designs(layer).values() for version in found}
    # Those that do not take its default problem, such as another dtype, are rows that say so.
    assert took
    assert took <= every
    assert all(f"{key} " in table for key in every)
    assert table.count("absent") == len(every - took)
    problem = benching.workloads.find(layer).problem
    assert all(isinstance(plan, problem) for _, _, plan, _ in ran)


def test_back_ends_compare_by_the_newest_version_that_did_not_fail(ran, monkeypatch):
    entries = [SimpleNamespace(version=v, negative=v == "v3") for v in ("v0", "v2", "v3")]
    logs = {"flash_mla": SimpleNamespace(entries=entries)}
    monkeypatch.setattr(knowledge, "load_all", lambda root: SimpleNamespace(devlogs=logs))
    bench("--designs=flash_mla,flash_attention", "--newest", "--arch=sm_90", "--no_check")
    last = versions_of("flash_attention")[-1]
    assert [key for _, key, _, _ in ran] == ["flash_mla v2", last]
    assert [settings["check"] for *_, settings in ran] == [False, False]


def test_the_default_workload_has_the_most_designs(ran):
    bench()
    layers = {registry.find(*key.split()).layer for _, key, _, _ in ran}
    (layer,) = layers
    assert len(registry.designs(layer)) == max(
        len(registry.designs(v.layer)) for v in registry.versions()
    )


def test_flags_are_the_axes_of_the_workload(ran):
    assert bench("--designs=gemm", "--m=512", "--dtype=fp16") == 1
    assert {(p.m, p.dtype) for _, _, p, _ in ran} == {(512, "fp16")}


@pytest.mark.parametrize(
    "argv", [["--designs=gemm,flash_mla"], ["--workload=gemm", "--designs=flash_mla"]]
)
def test_designs_of_two_workloads_are_refused_in_one_sentence(argv, ran):
    with pytest.raises(UsageError, match=r"^bench compares .* and these are of gemm and mla$"):
        bench(*argv)
    assert not ran


def test_what_compiles_nothing_is_checked(ran):
    bench("--designs=torch_sdpa")
    assert {mode for mode, _, _, _ in ran} == {"disabled"}


def test_on_a_gpu_times_are_shown_against_the_first(timed, capsys):
    flags = ("--bench_runs=7", "--no_autotune", "--no_check")
    assert bench("--designs=flash_mla", *flags, "--verbose") == 0
    assert timed[0] == ("event", {"bench_runs": 7, "no_autotune": True, "check": False})
    out = capsys.readouterr().out
    assert "against flash_mla v0" in out
    assert "4000.0" in out
    assert "2x faster" in out
    assert "4x faster" in out
    assert "tile_m=64 num_worker_warps=8" in out


def test_the_winner_comes_first(timed, capsys, monkeypatch):
    costs_as(monkeypatch)
    assert bench("--designs=flash_mla") == 0
    *_, second, first = every = versions_of("flash_mla")
    shown = capsys.readouterr().out.partition(f"{first} wins: ")[2]
    assert shown.startswith(f"{8000 / 2 ** len(every):,.1f} us, ")
    assert f"2x faster than {second}, the next." in shown.partition("\n")[0]
    order = [line.split()[1:3] for line in shown.splitlines() if line.startswith("│ flash_mla")]
    assert [" ".join(words) for words in order] == every[::-1]


def test_without_a_gpu_spills_rank_and_failures_come_last(ran, capsys):
    assert bench("--designs=flash_mla") == 1
    shown = capsys.readouterr().out
    compiled = ", ".join(key for key in versions_of("flash_mla") if not key.endswith(" v1"))
    assert f"No winner without a GPU; least spills (0): {compiled}." in shown
    order = [line for line in shown.splitlines() if line.startswith("│ flash_mla")]
    assert "does not compile" in order[-1]


def test_times_of_another_run_are_not_divided():
    rows = [
        benching.Row(registry.find("flash_mla"), None, record(
            outcome=passed(total=duration()), target="nvidia-h200-sxm", mode="event", run=run,
        ))
        for run in ("aaaa", "bbbb")
    ]  # fmt: skip
    out = io.StringIO()
    Console(file=out, width=200).print(benching.table(rows))
    assert "faster" not in out.getvalue()
    assert "as fast" not in out.getvalue()


def test_the_table_goes_to_a_csv_file(timed, tmp_path, capsys):
    path = tmp_path / "deep" / "bench.csv"
    assert bench("--designs=flash_mla", f"--csv={path}") == 0
    found = pandas.read_csv(path)
    versions = [key.split()[1] for key in versions_of("flash_mla")]
    assert list(found["version"]) == versions
    assert list(found["median_us"]) == [8000 / 2**n for n in range(1, len(versions) + 1)]
    assert f"wrote {path}" in capsys.readouterr().out


def test_an_absent_peer_is_a_row_with_its_reason(ran, monkeypatch, capsys):
    run = modes.run

    def fake(mode, plan, *, version, **settings):
        if version.version == "v0":
            raise ToolchainError("library x is not installed")
        return run(mode, plan, version=version, **settings)

    monkeypatch.setattr(modes, "run", fake)
    assert bench("--designs=flash_mla") == 1
    assert "library x is not installed" in capsys.readouterr().out


def test_where_nothing_runs_it_is_an_error(ran, monkeypatch):
    def fake(*_, **__):
        raise ToolchainError("no compiler")

    monkeypatch.setattr(modes, "run", fake)
    with pytest.raises(ToolchainError, match="no compiler"):
        bench("--designs=flash_mla")


def test_archs_are_refused_where_it_times(timed):
    with pytest.raises(UsageError, match="--arch is for static runs"):
        bench("--arch=sm_90")


def test_help_shows_each_switch_once(capsys):
    with pytest.raises(SystemExit):
        bench("--help")
    out = capsys.readouterr().out
    assert "--no_no_" not in out
    for flag in ("--no_autotune", "--no_check", "--csv", "--workload"):
        assert flag in out


@pytest.mark.parametrize(
    ("argv", "error", "said"),
    [
        (["--bench_runs=0"], UsageError, "--bench_runs=0 is below 1"),
        (["--designs="], UsageError, "--designs= is empty"),
        (["--no_no_autotune"], UsageError, "unknown flag --no_no_autotune"),
        (["--designs=flash_mal"], UnknownNameError, "did you mean 'flash_mla'"),
        (["--workload=mal"], UnknownNameError, "did you mean 'mla'"),
        (["--b=0"], PlanError, "b=0 is below 1"),
        (["--arch=sm_1"], UnknownNameError, "unknown arch 'sm_1'"),
    ],
)
def test_bad_input(argv, error, said, ran):
    with pytest.raises(error, match=said):
        bench(*argv)
    assert not ran


def test_a_version_that_refuses_the_problem_is_a_row_of_its_own():
    options = SimpleNamespace(
        **{f.name: f.default for f in WORKLOAD.problem.option_fields()} | {"causal": True}
    )
    versions = [registry.find("tilegym_mla"), registry.find("flash_mla")]
    plans, refused = benching.plans_of(versions, WORKLOAD, options)
    assert [version.design for version, _ in plans] == ["flash_mla"]
    assert [row.absent for row in refused] == ["causal: TileGym's MLA decode takes no mask"]
    with pytest.raises(PlanError, match="takes no mask"):
        benching.plans_of(versions[:1], WORKLOAD, options)
