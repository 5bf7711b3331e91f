"""Wrong kernels that share a compile: which are run, by which problems, and what is kept."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mla_var3.app import choosing, edited
from mla_var3.app.choosing import Chosen
from mla_var3.app.judging import Judged, Wrong
from mla_var3.errors import HyperMlaError
from mla_var3.runtime import registry

VERSION = registry.find("hopper_gemm", "v0")
#: By problem the numbers that its code holds.
CODE = {"small": {0, 1, 3, 5}, "large": {1, 2, 3, 8}}
#: Of them, those whose values are the same in all of a problem.
SAME = {"small": set[int](), "large": {1, 3, 8}}
#: Of what kind each edit is; nobody compiles the function of number 6.
KINDS = {
    0: {"run"}, 1: {"run"}, 2: {"run", "same"}, 3: {"run", "other"}, 4: {"same"}, 5: {"run"},
    7: {"other"}, 8: {"run"},
}  # fmt: skip


class Plan:
    def __init__(self, name: str) -> None:
        self.name = name

    def slug(self) -> str:
        return self.name


def cases() -> bytes:
    named = [SimpleNamespace(plan=Plan(name), build=None) for name in CODE]
    return pickle.dumps(named)


class Choices:
    """Says what CODE and KINDS say, and notes what it is asked for."""

    number: int | None = None

    def __init__(self) -> None:
        self.ran: set[str] = set()

    def written(self, source: str, numbers: Mapping[str, int]) -> str:
        return f"{source}# {sorted(numbers.values())}\n"

    def play(self, log: Path) -> None:
        pass

    def take(self, number: int | None) -> None:
        Choices.number = number
        self.ran = set()

    def taken(self) -> frozenset[int]:
        return frozenset(CODE[max(self.ran)])

    def differing(self) -> frozenset[int]:
        return self.taken() - SAME[max(self.ran)]

    def kinds(self, log: Path) -> dict[int, frozenset[str]]:
        return {number: frozenset(kinds) for number, kinds in KINDS.items()}


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """What comes of nine edits, where a problem says what ``said`` answers."""

    def of(said: Any, **more: Any) -> Chosen:
        choices = Choices()
        played: dict[Path, str] = {}

        def of_case(_version: Any, case: Any) -> Judged | None:
            choices.ran = {case.plan.slug()}
            return said(choices.number, case.plan.slug())

        monkeypatch.setattr(choosing, "of_case", of_case)
        monkeypatch.setattr(edited, "play", played.__setitem__)
        language = SimpleNamespace(choices=lambda: choices)
        monkeypatch.setattr(choosing.languages, "find", lambda _key: language)
        todo = [Wrong(VERSION, VERSION.path, f"edit {n}", "") for n in range(9)]
        return choosing.judged(todo, cases(), tmp_path, **more)

    return of


def test_an_edit_is_run_by_the_problems_whose_code_holds_it(judged: Any) -> None:
    def said(number: int | None, slug: str) -> Judged | None:
        where = CODE[slug] - SAME[slug]
        assert number is None or number in where, "it was run where it changes nothing"
        if number == 5:
            return Judged(None, "TypeError: no", "TypeError")
        return Judged(None) if (number, slug) in {(0, "small"), (2, "large")} else None

    found = judged(said)
    assert found.verdicts == {
        0: "small",
        1: None,
        2: "large",
        5: "refused: TypeError",
        6: None,
        8: None,
    }
    assert found.same == {4}
    assert found.own == {3, 7}


def test_each_verdict_is_told_as_it_is_reached(judged: Any, tmp_path: Path) -> None:
    log = tmp_path / "told"

    def tell(number: int, said: str | None) -> None:
        with log.open("a") as file:
            file.write(f"{number} {said}\n")

    def said(number: int | None, _slug: str) -> Judged | None:
        if number == 2:  # It begins once another is told, and not once all are.
            while not log.exists():
                time.sleep(0.01)
        return Judged(None) if number in (0, 2) else None

    found = judged(said, tell=tell)
    told = dict(line.split() for line in log.read_text().splitlines())
    assert told == {str(n): str(found.verdicts[n]) for n in (0, 1, 2, 5, 8)}


def test_what_few_problems_show_is_run_by_no_more(
    judged: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(choosing, "FIRST", 1)
    monkeypatch.setitem(SAME, "large", set())
    log = tmp_path / "ran"

    def said(number: int | None, slug: str) -> Judged | None:
        if number is None:
            time.sleep(0.1 if slug == "large" else 0.0)
        else:
            with log.open("a") as file:
                file.write(f"{number} {slug}\n")
        return (
            Judged(None) if (number, slug) in {(0, "small"), (1, "large"), (8, "large")} else None
        )

    monkeypatch.setitem(CODE, "large", {0, 1, 2, 3, 8})
    found = judged(said)
    assert found.verdicts == {0: "small", 1: "large", 2: None, 5: None, 6: None, 8: "large"}
    ran = log.read_text().splitlines()
    assert set(ran[:5]) == {"0 small", "1 small", "2 large", "5 small", "8 large"}
    assert ran[5:] == ["1 large"]


def test_problems_that_show_something_new_come_first() -> None:
    given = [
        (3.0, {1, 2}),
        (1.0, {1, 2}),
        (0.5, {1}),
        (4.0, {1, 2, 3, 4}),
        (9.0, {5}),
        (0.1, set()),
    ]
    runs = [choosing._Run(None, frozenset(), frozenset(d), t) for t, d in given]  # type: ignore[arg-type]
    # The third gives 2 a second, the second one then 1, the fourth a half, and so on.
    order = [
        given.index((run.seconds, set(run.differing))) for run in choosing._by_what_is_new(runs)
    ]
    assert order == [2, 1, 3, 4, 5, 0]


def test_a_version_that_fails_with_nothing_chosen_judges_nothing(judged: Any) -> None:
    with pytest.raises(HyperMlaError, match=r"hopper_gemm v0 with choices.*: large is wrong"):
        judged(lambda number, slug: Judged(None) if (number, slug) == (None, "large") else None)


@pytest.mark.slow
def test_who_is_killed_or_late_is_not_judged(judged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "LONGER_S", 5.0)  # A crash on a busy machine takes 1.

    def said(number: int | None, _slug: str) -> Judged | None:
        if number == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 1:
            signal.pause()
        if number == 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        return None

    found = judged(said)
    assert found.verdicts == {2: "refused: crash", 5: None, 6: None, 8: None}
    assert found.same == {4}


def test_a_language_without_choices_compiles_each(tmp_path: Path) -> None:
    gemm = registry.find("gemm@cutile-dsl", "v0")
    todo = [Wrong(gemm, gemm.path, "edit", "")] * 3
    assert choosing.judged(todo, b"", tmp_path) == Chosen({}, frozenset(), frozenset({0, 1, 2}))
