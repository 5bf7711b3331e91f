"""Many edits in one source: each one that is chosen gives what the edit by itself gives."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mla_var3.languages.cute import choices
from mla_var3.languages.cute.choices import FIRST, CuteChoices, chosen, numbers
from mla_var3.languages.cute.mutants import Deriver
from mla_var3.languages.deriving import CHOICE

SOURCE = '''
class cute:
    jit = staticmethod(lambda function: function)
    ceil_div = staticmethod(lambda rows, by: -(-rows // by))

class cutlass:
    min, max, range = min, max, range

@cute.jit
def all_of(table, first, rows, width):
    """Edits within edits, of several lines, of indices that change places."""
    seen = []
    for i in cutlass.range(cutlass.min(first + 1,  # the rest
                                       rows), rows):
        if i - 1 < cute.ceil_div(rows + first, width):
            seen.append(table[i % width, first, (i + first) // 2])
    return seen
'''
TABLE = {(i, j, k): 100 * i + 10 * j + k for i in range(9) for j in range(9) for k in range(9)}


def run(text: str, monkeypatch: pytest.MonkeyPatch, choice: Callable[..., Any] | None) -> object:
    """What the function of a source returns; the name of the error where it does not."""
    monkeypatch.setattr(builtins, CHOICE, choice, raising=False)
    names: dict[str, Any] = {}
    exec(text, names)
    try:
        return names["all_of"](TABLE, 1, 7, 3)
    except Exception as error:  # noqa: BLE001  # An edit may well end in one.
        return type(error).__name__


def test_one_chosen_edit_is_the_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    mutants = list(Deriver(SOURCE).mutants())
    whole = CuteChoices().written(SOURCE, {one.edit: n for n, one in enumerate(mutants)})
    assert whole.count("\n") >= SOURCE.count("\n") - 1
    assert whole.count(f"{CHOICE}(") == len(mutants) + sum("swapped" in m.edit for m in mutants)
    found = [run(one.text, monkeypatch, None) for one in mutants]
    for number, alone in enumerate(found):
        assert alone == run(
            whole, monkeypatch, lambda n, kept, edit, x=number: edit() if n == x else kept
        ), mutants[number].edit
    as_it_is = run(SOURCE, monkeypatch, None)
    assert as_it_is == run(whole, monkeypatch, lambda _n, kept, _edit: kept)
    assert len({str(one) for one in found}) > len(mutants) // 2


def test_a_source_holds_only_the_edits_that_are_wanted() -> None:
    one = next(m for m in Deriver(SOURCE).mutants() if "rows + first -> (rows)" in m.edit)
    text = CuteChoices().written(SOURCE, {one.edit: 5})
    assert text.count(CHOICE) == 1
    assert f"{CHOICE}(5, rows + first, lambda: rows)" in text


PTX = f"mov.b32 %r7, {FIRST + 3};\nmov.b32 %r12, {FIRST + 11};\nmov.b32 %r1, 7;\n"


def test_one_flag_is_set_and_nothing_else_is_touched() -> None:
    assert numbers(PTX) == {3, 11}
    assert chosen(PTX, 11) == "mov.b32 %r7, 0;\nmov.b32 %r12, 1;\nmov.b32 %r1, 7;\n"
    assert chosen(PTX, None) == "mov.b32 %r7, 0;\nmov.b32 %r12, 0;\nmov.b32 %r1, 7;\n"


def test_a_process_that_plays_nothing_changes_no_ptx(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choices.settled(PTX) == PTX
    monkeypatch.setattr(choices, "_playing", None)
    taking = CuteChoices()
    taking.take(3)
    assert choices.settled(PTX) == chosen(PTX, 3)
    assert taking.taken() == {3, 11}
    taking.take(None)
    assert taking.taken() == frozenset()


def test_kinds_are_those_of_every_place(tmp_path: Path) -> None:
    log = tmp_path / "kinds"
    assert CuteChoices().kinds(log) == {}
    log.write_text("4 run\n4 same\n7 other\n4 run\n")
    assert CuteChoices().kinds(log) == {4: {"run", "same"}, 7: {"other"}}


def test_a_choice_of_constants_is_none(tmp_path: Path) -> None:
    pytest.importorskip("cutlass")
    log = tmp_path / "kinds"
    choose = choices._Chooser(log)

    def fails() -> int:
        raise ZeroDivisionError

    assert choose(0, 3, lambda: 3) == 3
    assert choose(1, 3, lambda: 0) == 3
    assert choose(2, (1, 2), lambda: (1, 2)) == (1, 2)
    assert choose(3, 3, fails) == 3
    assert choose(4, True, lambda: 1) is True
    assert CuteChoices().kinds(log) == {
        0: {"same"}, 1: {"other"}, 2: {"other"}, 3: {"other"}, 4: {"other"},
    }  # fmt: skip
