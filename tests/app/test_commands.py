from __future__ import annotations

import concurrent.futures
import io
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from factories import correctness, duration, passed, prediction, record, stage, static_facts
from rich.console import Console

from mla_var3 import records
from mla_var3.app import commands
from mla_var3.app.commands import CheckOutcome
from mla_var3.errors import (
    HyperMlaError,
    PlanError,
    RecordError,
    UnknownNameError,
    UsageError,
)
from mla_var3.profiling import event, static_profile
from mla_var3.runtime import registry


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


class TestCheck:
    @pytest.fixture
    def threads(self, monkeypatch):
        """Jobs in threads, on outcomes made up here."""
        monkeypatch.setattr(
            commands.concurrent.futures, "ProcessPoolExecutor",
            lambda workers, **_: concurrent.futures.ThreadPoolExecutor(workers),
        )  # fmt: skip
        wrong: dict[tuple[str, int], str] = {}

        def outcome(design, version, index):
            text = wrong.get((version, index), "")
            if text == "raise":
                raise PlanError("no plan")
            if text == "killed":
                raise concurrent.futures.BrokenExecutor
            error = math.nan if text else 1e-3
            return CheckOutcome(f"{design} {version}", f"slug-{index}", error, text)

        monkeypatch.setattr(commands, "_check_one", outcome)
        return wrong

    def test_all_right_is_0(self, threads, capsys):
        assert commands.main(["check", "flash_mla"]) == 0
        out = capsys.readouterr().out
        assert out.count(" ok\n") == 27
        assert "3 version(s), 27 problems: all right" in out
        assert "[  1/27] flash_mla v0" in out

    def test_one_wrong_is_1_and_says_what(self, threads, capsys):
        threads["v1", 4] = "o: relative error nan [x]"
        assert commands.check("flash_mla", "v1") == 1
        out = capsys.readouterr().out
        assert "error nan WRONG" in out
        assert "o: relative error nan [x]" in out
        assert "1 version(s), 9 problems: 1 wrong" in out

    def test_without_names_everything_is_checked(self, threads, capsys):
        assert commands.check() == 0
        assert f"{len(registry.versions())} version(s)" in capsys.readouterr().out

    def test_a_refused_plan_ends_the_run(self, threads):
        threads["v0", 0] = "raise"
        with pytest.raises(PlanError, match="no plan"):
            commands.check("flash_mla", "v0")

    def test_a_killed_process_is_one_sentence(self, threads):
        threads["v0", 0] = "killed"
        with pytest.raises(HyperMlaError, match="a checking process was killed, perhaps for lack"):
            commands.check("flash_mla", "v0")

    @pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
    def test_an_interrupt_ends_all_processes_in_one_sentence(self):
        command = [sys.executable, "-m", "mla_var3.app.commands", "check", "flash_mla"]
        done = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        children = Path(f"/proc/{done.pid}/task/{done.pid}/children")
        while done.poll() is None and len(children.read_text().split()) < 2:
            time.sleep(0.02)
        time.sleep(0.3)  # They import now.
        os.killpg(done.pid, signal.SIGINT)
        _, err = done.communicate()
        assert (done.returncode, err) == (130, "interrupted; nothing half-written is left\n")

    def test_one_problem_is_checked_where_torch_can(self):
        outcome = commands._check_one("flash_mla", "v1", 8)
        assert outcome.version == "flash_mla v1"
        assert outcome.slug == "b1-h16-s5-t3-p64-k512-bf16-causal"
        assert outcome.explanation == ""
        assert outcome.error < 4e-3

    def test_in_processes_of_their_own(self, monkeypatch):
        version = registry.find("flash_mla", "v1")
        last = version.plan_class()().check_plans()[-1:]
        monkeypatch.setattr(version.plan_class(), "check_plans", lambda _: last)
        out = io.StringIO()
        # The child's check_plans is whole, so that index 0 is another problem there.
        (outcome,) = commands.check_versions([version], Console(file=out), workers=1)
        assert outcome.explanation == ""
        assert outcome.slug.startswith("b2-h16-s1-t200")


class TestCompare:
    def write(self, version: str, **changes):
        records.write(record(version=version, **changes))

    def compared(self, *names: str) -> str:
        out = io.StringIO()
        for table in commands.comparison_tables(*names):
            Console(file=out, width=200).print(table)
        return out.getvalue()

    def cells(self, text: str, label: str) -> list[str]:
        (line,) = [x for x in text.splitlines() if x.strip(" │").startswith(label)]
        return [cell.strip() for cell in line.split("│")[2:-1]]

    def test_figures_side_by_side_with_their_ratio(self):
        one = passed(
            stages=[stage(static=static_facts())], predictions=[prediction(time_us=4.0)],
            correctness=correctness(cases=[
                records.CheckedCase(problem={}, max_relative_error=1e-3, bytes_loaded=4000),
                records.CheckedCase(problem={}, max_relative_error=2e-3, bytes_loaded=4000),
            ]),
        )  # fmt: skip
        two = passed(
            stages=[stage(static=static_facts(registers=84, stack_bytes=16, mma_path="HMMA"))],
            flops=2 * 10**9, predictions=[prediction(time_us=6.0)], correctness=None,
        )  # fmt: skip
        self.write("v0", outcome=one)
        self.write("v1", outcome=two, run="bbbb")
        text = self.compared("flash_mla", "v0", "v1")
        assert "flash_mla: static/sm_90 · static · b64-bf16" in text
        assert self.cells(text, "GFLOP") == ["1", "2", "2.000"]
        assert self.cells(text, "relative error") == ["0.002", "", ""]
        assert self.cells(text, "kB loaded") == ["8", "", ""]
        assert "stored" not in text
        assert self.cells(text, "floor us, nvidia-h200-sxm") == ["4", "6", "1.500"]
        assert self.cells(text, "flash_mla: registers") == ["168", "84", "0.500"]
        assert self.cells(text, "flash_mla: stack bytes") == ["0", "16", ""]
        assert self.cells(text, "flash_mla: MMA") == ["HGMMA", "HMMA", ""]

    @pytest.mark.parametrize(("run", "ratio"), [("aaaa", "0.500"), ("bbbb", "other run")])
    def test_times_are_divided_within_one_run_only(self, run, ratio):
        def timed(median):
            stages = [stage(n, duration=duration(median / 2)) for n in ("a", "b")]
            return passed(total=duration(median), stages=stages)

        where = {"target": "nvidia-h200-sxm", "mode": "event"}
        self.write("v0", outcome=timed(20.0), **where)
        self.write("v1", outcome=timed(10.0), run=run, **where)
        text = self.compared("flash_mla", "v0", "v1")
        assert self.cells(text, "median us") == ["20", "10", ratio]
        assert self.cells(text, "a: median us") == ["10", "5", ratio]
        assert self.cells(text, "GFLOP") == ["1", "1", "1.000"]

    def test_failures_and_stale_records_are_told(self):
        stale = record().kernel.model_copy(update={"source_sha256": "0" * 64})
        self.write("v0", kernel=stale)
        self.write("v1", outcome=records.Failed(error="spilled", correctness=correctness("failed")))
        text = self.compared("flash_mla", "v0", "v1")
        assert "(stale: v0)" in " ".join(text.split())
        assert self.cells(text, "status") == ["", "failed: spilled", ""]

    def test_an_error_that_is_not_finite_is_left_out(self):
        broken = correctness(cases=[records.CheckedCase(problem={})])
        for version in ("v0", "v1"):
            self.write(version, outcome=passed(correctness=broken))
        assert "relative error" not in self.compared("flash_mla", "v0", "v1")

    def test_each_common_problem_has_a_table(self):
        for version in ("v0", "v1"):
            for target in ("static/sm_90", "static/sm_100"):
                self.write(version, target=target)
        self.write("v1", target="static/sm_120")
        assert len(commands.comparison_tables("flash_mla", "v0", "v1")) == 2

    def test_without_common_records_it_says_what_to_run(self):
        with pytest.raises(
            RecordError,
            match="flash_mla v0 and v1 share no record to compare; run nox -s profile -- flash_mla "
            "v0 and nox -s profile -- flash_mla v1",
        ):
            self.compared("flash_mla", "v0", "v1")
        self.write("v0")
        with pytest.raises(RecordError, match=r"; run nox -s profile -- flash_mla v1$"):
            self.compared("flash_mla", "v0", "v1")
        self.write("v1", slug="other")
        with pytest.raises(RecordError, match="flash_mla v0 and nox -s profile -- flash_mla v1"):
            self.compared("flash_mla", "v0", "v1")

    def test_unknown_versions(self):
        with pytest.raises(UnknownNameError, match="version of flash_mla 'v9'"):
            commands.compare("flash_mla", "v0", "v9")

    def test_it_is_printed(self, capsys):
        for version in ("v0", "v1"):
            self.write(version)
        assert commands.main(["compare", "flash_mla", "v0", "v1"]) == 0
        assert "GFLOP (model)" in capsys.readouterr().out
        with pytest.raises(UsageError, match="V1 and V2 must be given"):
            commands.main(["compare", "flash_mla"])


class TestBench:
    @pytest.fixture
    def profiled(self, monkeypatch):
        """Static profiles made up here; v1 fails."""
        calls = []

        def fake(plan, *, version, archs):
            calls.append((version.key, plan, archs))
            stages = [stage(static=static_facts())]
            outcome = (
                records.Failed(error="does not compile") if version.version == "v1"
                else passed(stages=stages, predictions=[
                    prediction("nvidia-h100-sxm", 9.0), prediction(time_us=5.0)
                ])
            )  # fmt: skip
            made = record(version.design, version.version, outcome)
            return SimpleNamespace(records=(made,))

        monkeypatch.setattr(commands.torch.cuda, "is_available", lambda: False)
        monkeypatch.setattr(static_profile, "static_profile_plan", fake)
        return calls

    def test_every_version_on_the_asked_problem(self, profiled, capsys):
        argv = [
            "bench",
            "--designs=flash_mla, flash_attention",
            "--b=3",
            "--causal",
            "--arch=sm_90",
        ]
        assert commands.main(argv) == 1  # The two v1 fail.
        assert [key for key, _, _ in profiled] == [
            "flash_mla v0", "flash_mla v1", "flash_mla v2",
            "flash_attention v0", "flash_attention v1", "flash_attention v2",
        ]  # fmt: skip
        assert {(p.b, p.t, p.causal) for _, p, _ in profiled} == {(3, 4096, True)}
        assert {archs for _, _, archs in profiled} == {("sm_90",)}
        out = capsys.readouterr().out
        assert "[6/6] flash_attention v2" in out
        assert "168r 0B HGMMA" in out
        assert "does not compile" in out
        assert "5.0" in out
        assert "9.0" not in out

    def test_all_designs_at_one_problem_by_default(self, profiled):
        commands.bench([])
        assert len(profiled) == len(registry.versions())
        assert {p.s for _, p, _ in profiled} == {1}

    def test_on_a_gpu_times_are_shown(self, monkeypatch, capsys):
        calls = []

        def fake(plan, **kwargs):
            calls.append(kwargs)
            outcome = passed(
                total=duration(10.0), predictions=[prediction(time_us=5.0)], roofline_fraction=0.5
            )
            made = record(outcome=outcome, target="nvidia-h200-sxm", mode="event")
            return event.ProfileResult(made, ())

        monkeypatch.setattr(commands.torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(event, "event_profile_plan", fake)
        argv = ["--designs=flash_mla", "--bench_runs=7", "--no_autotune", "--no_check"]
        assert commands.bench(argv) == 0
        assert {(c["bench_runs"], c["no_autotune"], c["check"]) for c in calls} == {
            (7, True, False)
        }
        out = capsys.readouterr().out
        assert "10.0" in out
        assert "50.0%" in out
        assert "tile_m=64 num_worker_warps=8" in out

    def test_archs_are_refused_where_it_times(self, profiled, monkeypatch):
        monkeypatch.setattr(commands.torch.cuda, "is_available", lambda: True)
        with pytest.raises(UsageError, match="--arch is for static runs"):
            commands.bench(["--arch=sm_90"])

    def test_help_shows_each_switch_once(self, capsys):
        with pytest.raises(SystemExit):
            commands.main(["bench", "--help"])
        out = capsys.readouterr().out
        assert "--no_no_" not in out
        assert "--no_autotune" in out
        assert "--no_check" in out

    @pytest.mark.parametrize(
        ("argv", "error", "said"),
        [
            (["--bench_runs=0"], UsageError, "--bench_runs=0 is below 1"),
            (["--designs="], UsageError, "--designs= is empty"),
            (["--no_no_autotune"], UsageError, "unknown flag --no_no_autotune"),
            (["--designs=flash_mal"], UnknownNameError, "did you mean 'flash_mla'"),
            (["--b=0"], PlanError, "b=0 is below 1"),
            (["--arch=sm_1"], UnknownNameError, "unknown arch 'sm_1'"),
        ],
    )
    def test_bad_input(self, argv, error, said, profiled):
        with pytest.raises(error, match=said):
            commands.bench(argv)
        assert not profiled


def test_an_unknown_command_is_refused(monkeypatch):
    with pytest.raises(
        UnknownNameError, match=r"unknown command 'chekc' \(known: check, compare, bench\)"
    ):
        commands.main(["chekc"])
    monkeypatch.setattr(sys, "argv", ["commands"])
    with pytest.raises(UsageError, match="a command must be given: check, compare, bench"):
        commands.main()


def test_the_module_ends_with_2_and_a_sentence():
    done = subprocess.run(
        [sys.executable, "-m", "mla_var3.app.commands", "check", "flash_mal"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: unknown design 'flash_mal'")
