"""``check --mutants``: what is held against a wrong kernel, and what is the machine's fault."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from mla_var3.app import checking, judging, mutating
from mla_var3.app.judging import Judged, Wrong
from mla_var3.app.mutating import Shown
from mla_var3.errors import HyperMlaError, NotExecutableError
from mla_var3.runtime import registry
from mla_var3.runtime.check import CaseResult

VERSION = registry.find("gemm@cutile-dsl", "v0")
FILE = VERSION.path
#: What stands for the text of a wrong kernel here, and for that of the version.
EDITED, WHOLE = "edited", FILE.read_text("utf-8")
WRONG = Wrong(VERSION, FILE, "f: index 0: i -> 0", EDITED)
Answer = Callable[[], Judged]


def judged(monkeypatch: pytest.MonkeyPatch, edited: Answer, whole: Answer) -> str | None:
    """What is kept of a wrong kernel, where judging it, and the version, gives these answers."""

    def judge(one: Wrong, _cases: bytes, _kills: Mapping[str, int], _only: Any = None) -> Judged:
        return edited() if one.text == EDITED else whole()

    monkeypatch.setattr(mutating, "judge", judge)
    monkeypatch.setattr(mutating, "_pickled", lambda _version: b"")
    monkeypatch.setattr(mutating, "_imported", lambda: None)
    ((_, kept),) = mutating._verdicts(VERSION, [WRONG])
    return kept


def passes() -> Judged:
    return Judged(None)


def refuses() -> Judged:
    return Judged("m1", "TypeError: no such axis", "TypeError")


def ends_by(number: signal.Signals) -> Answer:
    def end() -> Judged:
        os.kill(os.getpid(), number)
        return Judged("never")

    return end


def test_what_a_problem_shows_is_kept_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, lambda: Judged("m1-n2"), passes) == "m1-n2"
    assert judged(monkeypatch, passes, passes) is None


@pytest.mark.slow
def test_an_edit_that_does_not_run_is_kept_as_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, refuses, passes) == "refused: TypeError"
    assert judged(monkeypatch, ends_by(signal.SIGSEGV), passes) == "refused: crash"


def test_an_error_that_the_version_has_too_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, refuses, refuses) is None
    assert judged(monkeypatch, refuses, lambda: Judged("m1")) is None


def test_a_process_that_was_killed_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, ends_by(signal.SIGKILL), passes) is None


@pytest.mark.parametrize("error", [OSError("disk"), MemoryError(), NotExecutableError("no DSL")])
def test_errors_of_the_machine_end_the_judging(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails() -> Judged:
        raise error

    with pytest.raises(HyperMlaError, match=type(error).__name__):
        judged(monkeypatch, fails, passes)


@pytest.mark.parametrize("raised", [ZeroDivisionError("by zero"), HyperMlaError("bad tiling")])
def test_an_error_of_a_problem_is_a_refusal(
    monkeypatch: pytest.MonkeyPatch, raised: Exception
) -> None:
    case = checking.cases_of(VERSION)[0]

    def fails(*_args: object, **_kw: object) -> CaseResult:
        raise raised

    monkeypatch.setattr("mla_var3.runtime.check.check_plan", fails)
    said = judging.of_case(VERSION, case)
    assert said is not None
    assert said.refusal == f"{type(raised).__name__}: {raised}"
    assert dataclasses.replace(said, slug="m1").kept == f"refused: {type(raised).__name__}"


@pytest.mark.slow
def test_an_edit_is_judged_by_who_calls_the_function() -> None:
    """``hopper_attention`` v0 comes first, imports the file, and calls other functions of it."""
    publish = "publish_max: swapped indices: side, wg.row + 8 * r -> wg.row + 8 * r, side"
    judges = [v.key for v in registry.versions() if publish in _edits(v)]
    assert judges == ["flash_mla@cute-dsl v0"]


@pytest.mark.slow
def test_what_changes_nothing_in_named_versions_is_for_the_next_one() -> None:
    taken = "produce_queries: dropped operand: taken + 1 -> (taken)"
    assert taken not in _edits(registry.find("hopper_attention", "v0"))
    assert taken in _edits(registry.find("hopper_attention", "v3"))


def test_what_compiles_alike_is_for_the_next_one_that_calls_the_function(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    edit = "multiply: dropped operand: step % self.stages -> (step)"
    path = tmp_path / mutating.FILE
    monkeypatch.setattr(mutating, "path_of", lambda _version: path)
    versions = [registry.find("hopper_gemm", f"v{number}") for number in (1, 2, 3)]
    known: dict[str, Shown] = {}
    for version in versions:
        assert [v for v in versions if edit in _edits(v)] == [version]
        known[version.version] = {"cute_python/kit/gemm_ring.py": {edit: mutating.SAME_CODE}}
        path.write_text(json.dumps(known))
        # It stays known of who passed it on.
        for passed in versions[: len(known)]:
            every = list(mutating.derived(passed))
            shown = mutating._of_version(passed, every, [], Console(quiet=True), 0)
            assert shown == known[passed.version]


def _edits(version: registry.Version) -> set[str]:
    found = mutating.derived(version) if version.language == "cute-dsl" else ()
    return {one.edit for one in found}
