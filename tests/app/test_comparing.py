from __future__ import annotations

import dataclasses
import io

import pytest
from factories import correctness, costs_as, duration, passed, record, stage, static_facts
from rich.console import Console

from mla_var3 import evidence
from mla_var3.app import commands, comparing
from mla_var3.errors import RecordError, UnknownNameError, UsageError
from mla_var3.runtime import registry


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    costs_as(monkeypatch)
    return tmp_path


class TestCompare:
    def write(self, version: str, **changes):
        evidence.write(record(version=version, **changes))

    def compared(self, *names: str) -> str:
        out = io.StringIO()
        for table in comparing.comparison_tables(*comparing.pair(*names, None)):
            Console(file=out, width=200).print(table)
        return out.getvalue()

    def cells(self, text: str, label: str) -> list[str]:
        (line,) = [x for x in text.splitlines() if x.strip(" │").startswith(label)]
        return [cell.strip() for cell in line.split("│")[2:-1]]

    def test_figures_side_by_side_with_their_ratio(self):
        one = passed(
            stages=[stage(static=static_facts())],
            correctness=correctness(cases=[
                evidence.CheckedCase(problem={}, max_relative_error=1e-3, bytes_loaded=4000),
                evidence.CheckedCase(problem={}, max_relative_error=2e-3, bytes_loaded=4000),
            ]),
        )  # fmt: skip
        two = passed(
            stages=[stage(static=static_facts(registers=84, stack_bytes=16, mma_path="HMMA"))],
            correctness=None,
        )  # fmt: skip
        self.write("v0", outcome=one)
        self.write("v1", outcome=two, run="bbbb")
        text = self.compared("flash_mla", "v0", "v1")
        assert "flash_mla: static/sm_90 · static · b64-bf16" in text
        assert self.cells(text, "GFLOP") == ["1", "1", "1.00x"]
        assert self.cells(text, "relative error") == ["0.002", "", ""]
        assert self.cells(text, "kB loaded") == ["8", "", ""]
        assert "stored" not in text
        assert self.cells(text, "bound us, nvidia-h200-sxm") == ["1.011", "1.011", "1.00x"]
        assert self.cells(text, "registers") == ["168", "84", "0.50x"]
        assert self.cells(text, "stack bytes") == ["0", "16", ""]
        assert self.cells(text, "MMA") == ["HGMMA", "HMMA", ""]

    def test_two_designs(self):
        facts = passed(stages=[stage(static=static_facts())])
        self.write("v0", outcome=facts)
        evidence.write(record(design="flash_mla_split_kv", version="v1", outcome=facts))
        text = self.compared("flash_mla", "v0", "flash_mla_split_kv/v1")
        assert "flash_mla v0" in text
        assert "flash_mla_split_kv v1" in text
        assert self.cells(text, "blocks per SM")[2] == "1.00x"

    @pytest.mark.parametrize(("run", "ratio"), [("aaaa", "2x faster"), ("bbbb", "other run")])
    def test_times_are_divided_within_one_run_only(self, run, ratio):
        def timed(median):
            stages = [stage(n, duration=duration(median / 2)) for n in ("a", "b")]
            return passed(total=duration(median), stages=stages)

        where = {"target": "nvidia-h200-sxm", "mode": "event"}
        self.write("v0", outcome=timed(2000.0), **where)
        self.write("v1", outcome=timed(1000.0), run=run, **where)
        text = self.compared("flash_mla", "v0", "v1")
        assert self.cells(text, "median us") == ["2000", "1000", ratio]
        assert self.cells(text, "a: median us") == ["1000", "500", ratio]
        assert self.cells(text, "GFLOP") == ["1", "1", "1.00x"]

    def test_failures_and_stale_records_are_told(self):
        stale = record().kernel.model_copy(update={"sources": {"kernels/x.py": "0" * 40}})
        self.write("v0", kernel=stale)
        self.write(
            "v1", outcome=evidence.Failed(error="spilled", correctness=correctness("failed"))
        )
        text = self.compared("flash_mla", "v0", "v1")
        assert "(stale: flash_mla v0)" in " ".join(text.split())
        assert self.cells(text, "status") == ["", "failed: spilled", ""]

    def test_an_error_that_is_not_finite_is_left_out(self):
        broken = correctness(cases=[evidence.CheckedCase(problem={})])
        for version in ("v0", "v1"):
            self.write(version, outcome=passed(correctness=broken))
        assert "relative error" not in self.compared("flash_mla", "v0", "v1")

    def test_each_common_problem_has_a_table(self):
        for version in ("v0", "v1"):
            for target in ("static/sm_90", "static/sm_100"):
                self.write(version, target=target)
        self.write("v1", target="static/sm_120")
        assert len(comparing.comparison_tables(*comparing.pair("flash_mla", "v0", "v1", None))) == 2

    def test_without_common_records_it_says_what_to_run(self):
        with pytest.raises(
            RecordError,
            match="flash_mla v0 and flash_mla v1 share no record to compare; run nox -s profile -- "
            "flash_mla v0 and nox -s profile -- flash_mla v1",
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

    def test_one_version_twice(self):
        with pytest.raises(UsageError, match="flash_mla v0 is given twice; name two versions"):
            commands.compare("flash_mla", "v0", "base")

    def test_it_is_printed(self, capsys):
        for version in ("v0", "v1"):
            self.write(version)
        assert commands.main(["compare", "flash_mla", "v0", "v1", "--verbose"]) == 0
        assert "GFLOP (model)" in capsys.readouterr().out
        assert commands.main(["compare", "flash_mla", "v0", "v1"]) == 0
        assert capsys.readouterr().out.startswith("No winner yet: no time of one run")
        with pytest.raises(UsageError, match="V1 must be given"):
            commands.main(["compare", "flash_mla"])

    def test_a_skip_is_told(self):
        self.write("v0")
        self.write("v1", outcome=evidence.Skipped(reason="no compiler"))
        assert self.cells(self.compared("flash_mla", "v0", "v1"), "status")[1] == (
            "skipped: no compiler"
        )

    def test_another_language_is_named_in_the_version_or_the_design(self, monkeypatch):
        asked = []
        monkeypatch.setattr(comparing.registry, "find", lambda *names: asked.append(names) or names)
        comparing.pair("flash_mla", "v1", "v0@cute-dsl", None)
        comparing.pair("flash_mla@cute-dsl", "v1", "v2", None)
        comparing.pair("flash_mla@cute-dsl", "v1", "v2", "cutile-dsl")
        assert asked == [
            ("flash_mla", "v1", None), ("flash_mla", "v0", "cute-dsl"),
            ("flash_mla@cute-dsl", "v1", None), ("flash_mla@cute-dsl", "v2", None),
            ("flash_mla", "v1", "cutile-dsl"), ("flash_mla", "v2", "cutile-dsl"),
        ]  # fmt: skip

    def test_versions_of_two_languages_name_theirs(self):
        one = registry.find("flash_mla")
        other = dataclasses.replace(one, language="cute-dsl")
        self.write("v0")
        cute = record().kernel.model_copy(update={"language": "cute-dsl", "package": "cute_python"})
        evidence.write(record(kernel=cute))
        (table,) = comparing.comparison_tables(one, other)
        assert [c.header for c in table.columns][1:] == [
            "v0@cutile-dsl", "v0@cute-dsl", "v0@cute-dsl against v0@cutile-dsl",
        ]  # fmt: skip
