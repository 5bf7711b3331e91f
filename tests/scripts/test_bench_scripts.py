"""The bench scripts: what they run, and the table that they leave."""

from __future__ import annotations

import csv
import runpy
import sys
from pathlib import Path

import pytest

from mla_var3 import evidence
from mla_var3.app import launcher
from tests.factories import costs_as, duration, passed, record

FOLDER = Path(__file__).parents[1] / "benchmark"


@pytest.fixture
def table(monkeypatch, tmp_path):
    """The module that the scripts share, with output below a folder of the test."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path))
    import bench_table

    return bench_table


def timed(version: str, s: int, median: float, run: str = "one") -> evidence.Record:
    sizes = {"b": 32, "h": 128, "s": s, "t": 4096, "dtype": "bf16", "causal": False}
    return record(
        version=version, run=run, problem={**sizes, "n": None}, slug=f"s{s}", mode="event",
        target="nvidia-h200-sxm", outcome=passed(total=duration(median)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("script", "arguments", "command"),
    [
        ("bench_all_mla.py", ["--b=8"], ["mla_var3.app.commands", "bench"]),
        ("bench_mla.py", ["--b=8"], ["mla_var3.app.commands", "bench", "--peers", "--newest"]),
        ("bench_mla.py", ["flash_mla", "v1", "--b=8"], ["mla_var3.kernel", "flash_mla", "v1"]),
        ("bench_mla.py", ["flash_mla", "--b=8"], ["mla_var3.kernel", "flash_mla"]),
        ("bench_mla_var6_plus.py", ["--b=8"], ["mla_var3.kernel", "mla_var6_plus", "v0"]),
        ("bench_mla_var6_plus_v3.py", ["--b=8"], ["mla_var3.kernel", "mla_var6_plus", "v3"]),
        ("bench_mla_var6_plus_v4.py", ["--b=8"], ["mla_var3.kernel", "mla_var6_plus", "v4"]),
    ],
)
def test_each_script_runs_its_command_once_a_problem(
    table, monkeypatch, script, arguments, command
):
    asked = asked_by(script, arguments, table, monkeypatch, gpu=True)
    assert asked == [[*command, f"--s={s}", "--b=8"] for s in table.QUERY_TOKENS]


def asked_by(script, arguments, table, monkeypatch, *, gpu: bool) -> list[list[str]]:
    """The commands that a script runs."""
    asked: list[list[str]] = []
    monkeypatch.setattr(launcher, "has_gpu", lambda: gpu)
    monkeypatch.setattr(table, "run", lambda line, folder=None: asked.append(line) or 0)
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(FOLDER / script), run_name="__main__")
    assert end.value.code == 0
    return asked


@pytest.mark.parametrize(
    ("given", "flags"),
    [([], ["--arch=sm_90", "--s=1"]), (["--s=4"], ["--arch=sm_90", "--s=4"]),
     (["--arch=sm_100", "--b=8"], ["--s=1", "--arch=sm_100", "--b=8"])],
)  # fmt: skip
def test_without_a_gpu_back_ends_are_compiled_once(table, monkeypatch, given, flags):
    (command,) = asked_by("bench_mla.py", given, table, monkeypatch, gpu=False)
    assert command == ["mla_var3.app.commands", "bench", "--peers", "--newest", *flags]


def test_the_table_compares_within_a_run_and_problem(table, monkeypatch, tmp_path, capsys):
    made = [timed("v0", 1, 20.0), timed("v1", 1, 10.0), timed("v0", 2, 30.0),
            timed("v1", 2, 15.0, run="two")]  # fmt: skip

    def bench(command, folder):
        for one in made:
            evidence.write(one, folder / "results")
        return 0

    monkeypatch.setattr(table, "run", bench)
    costs_as(monkeypatch)
    assert table.main("all", table.BENCH, ["--s=1"]) == 0
    path = Path(capsys.readouterr().out.removeprefix("table: ").strip())
    assert path.is_relative_to(tmp_path / "out/benchmark/all")
    with path.open() as file:
        rows = {(row["version"], row["s"]): row for row in csv.DictReader(file)}
    assert {row["language"] for row in rows.values()} == {"cutile-dsl"}
    slower = {key: float(row["times_the_fastest"]) for key, row in rows.items()}
    # Those of another run are divided by their own alone.
    assert slower == {("v0", "1"): 2.0, ("v1", "1"): 1.0, ("v0", "2"): 1.0, ("v1", "2"): 1.0}
    assert float(rows["v0", "1"]["tflops"]) == pytest.approx(10**9 / 20e-6 / 1e12)
    assert float(rows["v0", "1"]["gbps"]) == pytest.approx(10**6 / 20e-6 / 1e9)


def test_a_run_that_failed_stands_in_the_table_with_its_error(table, monkeypatch, capsys):
    failed = timed("v0", 1, 1.0).model_copy(update={"outcome": evidence.Failed(error="no room")})
    monkeypatch.setattr(
        table, "run", lambda line, folder: evidence.write(failed, folder / "results") and 1
    )
    assert table.main("all", table.BENCH, ["--s=1"]) == 1
    text = Path(capsys.readouterr().out.removeprefix("table: ").strip()).read_text()
    assert "no room" in text
    assert "median_us" not in text


def test_bad_input_ends_the_script(table, monkeypatch):
    asked = []
    monkeypatch.setattr(table, "run", lambda line, folder: asked.append(line) or 2)
    assert table.main("all", table.BENCH, ["--b=0"]) == 2
    assert len(asked) == 1


def test_a_command_of_a_script_tells_bad_input_in_one_sentence(table, capfd):
    assert table.main("v4", [*table.KERNEL, "mla_var6_plus", "v4"], ["--s=1", "--speed=1"]) == 2
    assert capfd.readouterr().err.startswith("error: unknown flag --speed")
