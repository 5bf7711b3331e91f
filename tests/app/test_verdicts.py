from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from mla_var3.app import checking, verdicts
from mla_var3.app.verdicts import CheckOutcome, Place
from mla_var3.cache import CACHE_VARIABLE
from mla_var3.runtime import cases, registry, unreached

GOOD = CheckOutcome("gemm v1", "m1", 1e-3, order="reverse", facts={("loop", "a.py:1"): {"many"}})
OTHERS = {
    "sizes": "doubled", "order": "reverse", "build": 3, "runs": 2, "metadata": True,
    "beside": True, "nan": True, "retuned": 1,
}  # fmt: skip


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))


@pytest.fixture
def version():
    return registry.find("gemm@cutile-dsl", "v1")


def first_case(version):
    return cases.cases(version.plan_class()())[0]


def place(version, key="ab"):
    """A place that is what it was, whatever the version rests on."""
    return Place.of(version, key)


def test_what_is_kept_comes_back_with_its_time(version):
    place(version).keep([GOOD, GOOD])
    found = place(version).kept()
    assert [dataclasses.replace(one, kept="") for one in found] == [GOOD, GOOD]
    assert {len(one.kept) for one in found} == {len("2026-01-01T00:00:00Z")}
    assert found[0].line() == f"{GOOD.line()} on {found[0].kept[:10]}"


@pytest.mark.parametrize("other", [{"explanation": "it is wrong"}, {"skipped": "needs a GPU"}])
def test_what_is_wrong_or_was_not_run_is_not_kept(other, version):
    place(version).keep([GOOD, dataclasses.replace(GOOD, **other)])
    assert place(version).kept() is None


def test_what_is_dropped_is_gone(version):
    place(version).keep([GOOD])
    place(version).drop()
    assert place(version).kept() is None


def test_a_folder_that_cannot_be_written_keeps_nothing(monkeypatch, tmp_path, version):
    (tmp_path / "file").touch()
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file"))
    place(version).keep([GOOD])
    assert place(version).kept() is None


def test_nothing_is_kept_of_what_was_edited_meanwhile(version):
    """The problems ran by sources of which nobody knows when they came."""
    before = Place.of(version, "ab", verdicts.rests_on(version, whole=True) | {"sources": "old"})
    before.keep([GOOD])
    assert before.kept() is None


def test_each_part_of_a_problem_has_a_key_of_its_own(version):
    case = cases.Case(first_case(version).plan, "default", "forward")
    rests = verdicts.rests_on(version)
    assert {*OTHERS, "plan"} == {field.name for field in dataclasses.fields(case)}
    others = [dataclasses.replace(case, **{name: value}) for name, value in OTHERS.items()]
    for field in dataclasses.fields(case.plan):
        value = getattr(case.plan, field.name)
        if type(value) is int:
            plan = dataclasses.replace(case.plan, **{field.name: value + 1})
            others.append(dataclasses.replace(case, plan=plan))
    assert len(others) > len(OTHERS)
    keys = {Place.of(version, (one,), rests).key for one in (case, *others)}
    assert len(keys) == 1 + len(others)
    assert Place.of(version, (case,), rests) == Place.of(version, (case,))


def test_what_a_verdict_rests_on_is_all_in_the_key(version, monkeypatch, tmp_path):
    """Sources, what the design argues, this package, and variables that what is installed reads."""
    before = verdicts.rests_on(version)
    assert before["sources"] == version.sources()
    monkeypatch.setattr(unreached, "path_of", lambda _: tmp_path / "unreached.toml")
    (tmp_path / "unreached.toml").write_text("# other reasons\n")
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_100a")
    monkeypatch.setattr(verdicts, "__file__", str(tmp_path / "app" / "verdicts.py"))
    after = verdicts.rests_on(version)
    assert {name for name in before if before[name] != after[name]} == {
        "argued", "settings", "code",
    }  # fmt: skip


def test_a_figure_of_a_device_is_of_the_code(version, monkeypatch, tmp_path):
    """Plans size grids by it."""
    monkeypatch.setattr(verdicts, "__file__", str(tmp_path / "app" / "verdicts.py"))
    file = tmp_path / "conf" / "device.toml"
    file.parent.mkdir()
    found = []
    for text in ("sm_count = 132", "sm_count = 78"):
        file.write_text(text)
        found.append(verdicts.rests_on(version))
    assert {name for name in found[0] if found[0][name] != found[1][name]} == {"code"}
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_bytes(b"1")
    assert verdicts.rests_on(version) == found[1]


def test_every_part_of_every_plan_is_told():
    """A key holds the text of plans: a part that has none would be taken for the same."""
    for version in registry.versions():
        plan = version.plan_class()()
        for told in (type(plan), *plan.tiling_types.values()):
            assert all(field.repr for field in dataclasses.fields(told))
        assert " at 0x" not in repr(plan)


class TestCheck:
    @pytest.fixture(autouse=True)
    def two(self, monkeypatch, version):
        """Two problems."""
        those = cases.cases(version.plan_class()())[:2]
        monkeypatch.setattr(checking, "cases_of", lambda _: those)
        monkeypatch.setattr(
            checking, "covers", lambda one, *_: checking.Covered(one, False, (), {})
        )

    @staticmethod
    def check(version, **how) -> str:
        out = io.StringIO()
        assert checking.check([version], Console(file=out, width=200), **how) == 0
        assert "1 version(s), 2 problems: all right" in out.getvalue()
        return out.getvalue()

    @staticmethod
    def places(version) -> list[Place]:
        return [Place.of(version, one.cases) for one in checking.groups_of(version)]

    def test_what_was_right_is_not_run_again(self, version, monkeypatch):
        assert "in an earlier check" not in self.check(version)
        monkeypatch.setattr(checking, "check_case", None)
        monkeypatch.setattr(checking, "_side_by_side", lambda work, *_: (_ for _ in work))
        assert "2 of them were right in an earlier check" in self.check(version)

    def test_it_is_where_that_is_asked(self, version):
        self.check(version)
        (place,) = self.places(version)
        place.drop()
        place.keep([GOOD, GOOD])
        assert "in an earlier check" not in self.check(version, anew=True)
        assert place.kept()[0].slug != GOOD.slug

    def test_it_is_after_an_edit(self, version, monkeypatch):
        self.check(version)
        sources = type(version).sources
        with monkeypatch.context() as patch:
            patch.setattr(type(version), "sources", lambda one: sources(one) | {"more": "ab"})
            assert "in an earlier check" not in self.check(version)
        assert "2 of them were right in an earlier check" in self.check(version)

    def test_where_a_gpu_runs_it_nothing_is_kept(self, version, monkeypatch):
        groups = [(*one[:2], one.cases, None) for one in checking.groups_of(version)]
        assert len(checking._places(groups, anew=False)) == 1
        monkeypatch.setattr("torch.cuda.is_available", lambda: True)
        assert checking._places(groups, anew=False) == []
