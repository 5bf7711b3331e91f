"""Sweeps: cases from a file, run once, kept whatever is killed, and drawn."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mla_var3 import evidence
from mla_var3.app import sweep as command
from mla_var3.campaign import cases, helper, surfaces, sweeping, sweepspec
from mla_var3.campaign.cases import Case, Outcome, Sources
from mla_var3.errors import HyperMlaError, InputError, ToolchainError, UsageError
from mla_var3.paths import repo_root
from tests.evidence.making import timed_record
from tests.fake_gpu import play_gpu

SPEC = """
versions = ["gemm v0"]
archs = ["sm_90"]
check = false

[problems]
m = [64, 128]
n = 64
k = 64

[tilings.gemm]
tile_m = [64, 128]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("mla_var3.paths.out_dir", lambda: tmp_path / "out")
    return tmp_path


def written(folder: Path, text: str = SPEC, name: str = "tiles.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def made(case: Case, median: float | None = None, **fields) -> Outcome:
    record = timed_record(median) if median else None
    return Outcome(case=case, **{"status": "passed", "record": record, **fields})


# -- the file -------------------------------------------------------------------------------------


def test_cases_are_the_product_of_what_the_file_names(folder):
    spec = sweepspec.read(written(folder))
    assert (spec.name, spec.mode) == ("tiles", "static")
    found = sweepspec.cases_of(spec)
    assert [(case.problem["m"], case.tilings["gemm"]["tile_m"]) for case in found] == [
        (64, 64), (64, 128), (128, 64), (128, 128)]  # fmt: skip
    assert {case.target for case in found} == {"sm_90"}
    keys = {Sources({}).key(case) for case in found}
    assert len(keys) == 4


def test_a_design_alone_means_all_its_versions_and_each_case_comes_once(folder):
    text = 'versions = ["gemm", "gemm v0"]\narchs = ["sm_90"]\n[[problems]]\nm = 64\n'
    found = sweepspec.cases_of(sweepspec.read(written(folder, text)))
    assert [case.version for case in found] == ["v0", "v1"]


def test_autotune_means_what_the_autotuner_tries(folder):
    text = 'versions = ["gemm v0"]\narchs = ["sm_90"]\ntilings = "autotune"\n'
    found = sweepspec.cases_of(sweepspec.read(written(folder, text)))
    assert len(found) > 10
    assert found[0].tilings == {}


def test_a_device_says_what_to_compile_for(folder):
    text = 'versions = ["gemm v0"]\ndevices = ["nvidia-b200", "nvidia-h200-sxm"]\n'
    found = sweepspec.cases_of(sweepspec.read(written(folder, text)))
    assert [(case.target, case.device) for case in found] == [
        ("sm_100", "nvidia-b200"), ("sm_90", "nvidia-h200-sxm")]  # fmt: skip


#: What is wrong with a file, and the field that the sentence names.
FAULTS = [
    ("versions = [", "cannot be read: not TOML"),
    ("", "versions: Field required"),
    ("versions = []", "versions"),
    ('versions = "gemm"', "versions"),
    ("versions = [3]", "versions.0"),
    ('versions = ["gemm v0 v1"]', "versions: 'gemm v0 v1' is not a design"),
    ('versions = ["gem"]', "versions: "),
    ('versions = ["gemm v77"]', "versions: "),
    ('versions = ["gemm"]\narchs = ["sm_1"]', "archs: "),
    ('versions = ["torch_sdpa"]', "archs: torch_sdpa v0 is compiled by nobody"),
    ('versions = ["gemm"]\ndevices = ["h2000"]', "devices: "),
    ('versions = ["gemm"]\ndevices = ["amd-mi300x"]', "devices: "),
    ('versions = ["gemm"]\narchs = ["sm_90"]\ndevices = ["nvidia-b200"]', "archs and devices"),
    ('versions = ["gemm"]\nmode = "event"', "devices: mode event needs one"),
    ('versions = ["gemm"]\nmode = "event"\narchs = ["sm_90"]', "archs: mode event"),
    ('versions = ["gemm"]\nmode = "fast"', "mode"),
    ('versions = ["gemm"]\ncheck = "perhaps"', "check"),
    ('versions = ["gemm"]\nbench_runs = 0', "bench_runs"),
    ('versions = ["gemm"]\nname = "Mine!"', "name"),
    ('versions = ["gemm"]\nname = "../x"', "name"),
    (f'versions = ["gemm"]\nname = "{"a" * 81}"', "name"),
    ('versions = ["gemm"]\nspeed = 1', "speed"),
    ('versions = ["gemm"]\n[problems]\nz = 1', "problems: "),
    ('versions = ["gemm"]\n[problems]\nm = []', "problems.0.m"),
    ('versions = ["gemm"]\n[problems]\nm = [[1]]', "problems.0.m"),
    ('versions = ["gemm"]\n[problems]\nm = inf', "problems.0.m"),
    ('versions = ["gemm"]\n[problems]\nm = true', "problems: m=True is of type bool, not int"),
    ('versions = ["gemm"]\n[problems]\nm = [64, 1.5]', "problems: m=1.5 is of type float"),
    ('versions = ["gemm"]\n[problems]\nm = "x"', "problems: m='x' is of type str"),
    ('versions = ["gemm"]\n[tilings.gemm]\ntile_m = "big"', "tilings: tile_m='big' is of type str"),
    ('versions = ["gemm"]\ntilings = "best"', "tilings: it is 'default', 'autotune', or a table"),
    ('versions = ["gemm"]\ntilings = ["default"]', "tilings: it is 'default', 'autotune', or a"),
    ('versions = ["gemm"]\nproblems = []', "problems: List should have at least 1 item"),
    ('versions = ["gemm"]\nbench_runs = true', "bench_runs: Input should be a valid integer"),
    ('versions = ["gemm"]\n[problems]\nm = [64, 0]', "problems: m=0 is below 1"),
    ('versions = ["gemm"]\n[tilings.gemm]\ntile_m = 64\n[tilings.gem]\ntile_m = 64',
     "tilings: no version has a stage gem"),
    ('versions = ["gemm"]\n[tilings.attention]\ntile_m = 1', "tilings: "),
    ('versions = ["gemm"]\n[tilings.gemm]\ntile_x = 1', "tilings: "),
    ('versions = ["gemm v0"]\narchs = ["sm_90"]\n[problems]\nm = [' + "1," * 3 + "]\nn = ["
     + ",".join(map(str, range(1, 9000))) + "]", "more than 20,000 cases"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), FAULTS)
def test_a_fault_is_one_sentence_with_file_and_field(folder, text, said):
    path = written(folder, text)
    with pytest.raises(HyperMlaError) as raised:
        command.main([str(path)])
    assert "tiles.toml" in str(raised.value)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not (folder / "out").exists()


def test_flags_that_make_no_sense_are_refused(folder):
    path = str(written(folder))
    for flags in (["--workers=0"], ["--workers=2", "--scheduler=tcp://x:1"]):
        with pytest.raises(UsageError):
            command.main([path, *flags])


# -- running --------------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch):
    """Cases that ran, with what came of them played."""
    ran: list[Case] = []

    def run(case, say=None):
        ran.append(case)
        refused = case.tilings["gemm"]["tile_m"] == 128
        return made(case, status="refused" if refused else "passed", reason="128" * refused)

    monkeypatch.setattr(cases, "run", run)
    return ran


def test_nothing_is_run_twice(folder, counted, capsys):
    path = written(folder)
    assert command.main([str(path), "--dry"]) == 0
    assert "4 cases, 4 of them to run" in capsys.readouterr().out
    assert command.main([str(path)]) == 0
    assert len(counted) == 4
    assert "2 passed, 0 failed, 2 refused" in capsys.readouterr().out
    written(folder, SPEC.replace("[64, 128]\nn", "[64, 128, 256]\nn"))
    assert command.main([str(path)]) == 0
    assert len(counted) == 6
    assert "6 cases, 2 of them to run" in capsys.readouterr().out


def test_an_edit_of_a_version_runs_its_cases_anew(folder, counted, monkeypatch):
    path = written(folder)
    command.main([str(path)])
    monkeypatch.setattr(cases.builds, "state_digest", lambda sources: "edited")
    command.main([str(path)])
    assert len(counted) == 8


def test_what_failed_is_kept_with_its_reason_and_run_again_where_asked(folder, monkeypatch, capsys):
    path = written(folder)
    monkeypatch.setattr(cases, "plan_of", lambda case: 1 / 0)
    assert command.main([str(path)]) == 1
    assert "failed: ZeroDivisionError: division by zero" in capsys.readouterr().out
    assert command.main([str(path)]) == 1
    assert "0 of them to run" in capsys.readouterr().out
    monkeypatch.setattr(cases, "run", lambda case, say=None: made(case))
    assert command.main([str(path), "--again"]) == 0


def test_a_missing_tool_fails_no_case(folder, monkeypatch):
    def missing(case):
        raise ToolchainError("tileiras is missing")

    monkeypatch.setattr(cases, "plan_of", missing)
    with pytest.raises(ToolchainError):
        command.main([str(written(folder))])
    assert not list((folder / "out/sweeps/tiles/cases").glob("*"))


def test_a_case_that_kills_its_process_again_and_again_fails(folder, counted):
    (case, *_) = sweepspec.cases_of(sweepspec.read(written(folder)))
    sweep = sweeping.Sweep("tiles")
    note = sweep.root / sweeping.BEGUN / sweep.path(case).name
    note.parent.mkdir(parents=True)
    note.write_text(str(sweeping.DEATHS))
    ((outcome,),) = sweeping.here(sweep)([[case]])
    assert outcome.status == "failed"
    assert "ended the process that ran it 3 times" in outcome.reason
    assert not counted


@pytest.mark.parametrize("text", ["", "{}", '{"status": "passed"}', "[]"])
def test_a_case_that_is_not_sound_is_named(folder, text):
    (case, *_) = sweepspec.cases_of(sweepspec.read(written(folder)))
    sweep = sweeping.Sweep("tiles")
    sweep.path(case).parent.mkdir(parents=True)
    sweep.path(case).write_text(text)
    with pytest.raises(InputError, match="json"):
        sweep.outcome(case)


def test_a_compiled_case_is_a_record_and_a_tiling_that_cannot_be_is_refused(folder):
    case = Case(design="gemm", version="v0", target="sm_90", check=False,
                problem={"m": 64, "n": 64, "k": 64})  # fmt: skip
    outcome = cases.run(case)
    assert outcome.status == "passed"
    assert outcome.record.outcome.correctness is None
    assert "registers" in str(outcome)
    refused = cases.run(case.model_copy(update={"tilings": {"gemm": {"tile_m": 3}}}))
    assert refused.status == "refused"
    assert "tile_m" in refused.reason
    unknown = cases.run(case.model_copy(update={"problem": {"z": 1}}))
    assert "'z'" in unknown.reason


def test_records_of_a_sweep_are_written_once(folder):
    sweep = sweeping.Sweep("tiles")
    for number in (1, 2):
        case = Case(design="gemm", version="v0", target="sm_90", problem={"m": number})
        sweep.keep(made(case, 10.0 * number))
    for _ in range(2):
        root = sweep.records()
        assert len(evidence.Index(root).records) == 2


def test_timed_cases_of_a_problem_are_one_piece_of_work(folder):
    def case(m, tile, mode="event"):
        return Case(design="gemm@cutile-dsl", version="v0", mode=mode, target="nvidia-h200-sxm",
                    problem={"m": m}, tilings={"gemm": {"tile_m": tile}})  # fmt: skip

    whole = [case(m, tile) for m in (1, 2) for tile in (64, 128)]
    assert sweeping.units(whole, whole) == [whole[:2], whole[2:]]
    assert sweeping.units(whole[3:], whole) == [whole[2:]]  # All of it anew, in one run.
    static = [case(m, 64, "static") for m in range(10)]
    assert [len(unit) for unit in sweeping.units(static, static)] == [4, 4, 2]


ORDER: list[int] = []


def noted(piece):
    """In place of what runs a piece; by its name in this module, which Dask does not copy."""
    ORDER.append(piece[0]["problem"]["m"])
    return [{"case": case, "status": "refused", "reason": "x"} for case in piece]


def test_an_idle_worker_gets_the_largest_piece_that_is_left(monkeypatch):
    """Whatever its queue: the last piece is a small one, and nobody waits for it long."""
    monkeypatch.setattr(helper, "isolated", noted)
    monkeypatch.setattr(helper, "has_gpus", lambda workers: True)
    monkeypatch.setattr(helper, "prepared", lambda *_: contextlib.nullcontext())
    found = [
        Case(design="gemm@cutile-dsl", version="v0", mode="event", target="nvidia-h200-sxm",
             problem={"m": m, "causal": True}) for m in (64, 8, 512, 128)
    ]  # fmt: skip
    with sweeping.client(1, None, True) as client:
        run = sweeping.on_workers(client, Sources({}), True)
        assert len(list(run(sweeping.units(found, found)))) == 4
    assert ORDER == [512, 128, 64, 8]


def test_a_timed_case_on_a_played_gpu(folder, monkeypatch):
    play_gpu(monkeypatch)
    case = Case(design="gemm", version="v0", mode="event", target="nvidia-h200-sxm",
                problem={"m": 64, "n": 64, "k": 64}, check=False, bench_runs=5)  # fmt: skip
    outcome = cases.run(case)
    assert outcome.status == "passed", outcome.reason
    assert outcome.median_us == 102.0
    with pytest.raises(ToolchainError, match="this is nvidia-h200-sxm, and the case is of"):
        cases.run(case.model_copy(update={"target": "nvidia-h100-sxm"}))


# -- workers --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_worker_that_is_killed_loses_nothing(folder):
    """Two workers of Dask; the process of one is killed while it works."""
    spec = sweepspec.read(written(folder))
    all_ = sweepspec.cases_of(spec)[:3]
    sweep, got = sweeping.Sweep("tiles"), []
    with sweeping.client(2, None, False) as client:
        beside = [one.start().pid for one in helper._prepared.values()]
        assert len(set(beside)) == 2
        how = sweeping.on_workers(client, sweep.sources, False)
        split = lambda units: how([[case] for unit in units for case in unit])  # noqa: E731
        victim = beside[0]
        killer = subprocess.Popen([sys.executable, "-c", "import os, sys, time\ntime.sleep(2)\n"
                                   f"os.kill({victim}, {int(signal.SIGKILL)})"])  # fmt: skip
        count = sweeping.run(sweep, all_, split, got.append)
        killer.wait()
    assert count == len(all_) == len(got)
    assert {outcome.status for outcome in got} == {"passed"}
    assert sweep.todo(all_) == []
    assert not helper._prepared


@pytest.mark.parametrize(("seen", "names"), [("", ["0", "1"]), ("3,GPU-5", ["3", "GPU-5"])])
def test_each_worker_sees_a_gpu_of_those_seen_here(monkeypatch, seen, names):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    assert [helper._gpu(number) for number in range(2)] == names


def test_a_worker_with_other_sources_is_found(folder):
    case = Case(design="gemm", version="v0", target="sm_90")
    found = sweeping._checked(made(case, 10.0), Sources({"gemm v0": "ours"}))
    assert (found.status, found.record) == ("failed", None)
    assert "other sources" in found.reason


@pytest.mark.slow
def test_nobody_at_an_address_and_too_few_gpus_are_one_sentence():
    assert not helper.has_gpus(99)
    with pytest.raises(UsageError, match="need a GPU each"), sweeping.client(99, None, True):
        pass
    assert not helper._prepared
    with (
        pytest.raises(ToolchainError, match="no scheduler answers at tcp"),
        sweeping.client(1, "tcp://127.0.0.1:9", False),
    ):
        pass


@pytest.mark.slow
def test_a_sweep_that_is_killed_goes_on(folder):
    env = {**os.environ, "HYPERMLA_ROOT": str(folder), "PYTHONPATH": str(repo_root() / "src")}
    path, argv = written(folder), [sys.executable, "-m", "mla_var3.app.sweep"]
    started = subprocess.Popen([*argv, str(path)], env=env, cwd=folder, stdout=subprocess.DEVNULL)
    kept = folder / "out/sweeps/tiles/cases"
    until = time.monotonic() + 120
    while not list(kept.glob("*.json")) and started.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    started.kill()
    started.wait()
    before = {p.name: p.stat().st_mtime_ns for p in kept.glob("*.json")}
    assert before
    done = subprocess.run([*argv, str(path)], env=env, cwd=folder, capture_output=True, text=True)
    assert "4 passed" in done.stdout, done.stderr
    after = {p.name: p.stat().st_mtime_ns for p in kept.glob("*.json")}
    assert len(after) == 4
    assert before.items() <= after.items()


# -- figures --------------------------------------------------------------------------------------


def surface_cases():
    for s in (1, 16):
        for t in (64, 128):
            for tile in (16, 32):
                case = Case(design="d", version="v0", mode="event", target="nvidia-h200-sxm",
                            problem={"s": s, "t": t}, tilings={"a": {"tile_m": tile}})  # fmt: skip
                yield made(case, 100.0 + s * tile + t * (48 - tile))


def test_a_surface_has_the_fastest_tiling_of_each_place(folder):
    found = list(surface_cases())
    (surface,) = surfaces.surfaces(found)
    assert (surface.across, surface.down) == (("s", (1, 16)), ("t", (64, 128)))
    best = {place: surfaces.label(one) for place, one in surface.best.items()}
    assert best[1, 64] == "tile_m=32"
    text = surfaces.draw(surface, folder / "x.svg").read_text()
    assert "tile_m=32" in text
    assert text == surfaces.draw(surface, folder / "x.svg").read_text()


def test_what_did_not_pass_is_no_choice(folder):
    found = [one.model_copy(update={"status": "failed", "reason": "no"}) for one in surface_cases()]
    (surface,) = surfaces.surfaces(found)
    assert surface.best == {}
    assert "none" in surfaces.draw(surface, folder / "x.svg").read_text()


def test_one_size_alone_is_drawn_too_and_none_is_not(folder):
    found = [one for one in surface_cases() if one.case.problem["t"] == 64]
    (surface,) = surfaces.surfaces(found)
    assert surface.down == ("", (None,))
    assert len(surface.best) == 2
    assert surfaces.surfaces([one for one in found if one.case.problem["s"] == 1]) == []


def test_the_table_holds_every_case():
    found = [*surface_cases()]
    failed = found[0].model_copy(update={"status": "failed", "reason": "a, b"})
    rows = list(csv.DictReader(io.StringIO(surfaces.table([failed, *found[1:]]))))
    assert len(rows) == len(found)
    assert rows[0]["reason"] == "a, b"
    assert float(rows[1]["median_us"]) == found[1].median_us


def test_the_example_is_sound():
    (path,) = (repo_root() / "examples/sweeps").glob("*.toml")
    assert len(sweepspec.cases_of(sweepspec.read(path))) == 16
    assert dataclasses.is_dataclass(surfaces.Surface)
