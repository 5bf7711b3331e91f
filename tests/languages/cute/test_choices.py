"""Many edits in one source: each one that is chosen gives what the edit by itself gives."""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mla_var3 import forked
from mla_var3.languages.cute import choices
from mla_var3.languages.cute.choices import CuteChoices
from mla_var3.languages.cute.mutants import Deriver
from mla_var3.languages.cute.selections import FIRST
from mla_var3.languages.deriving import CHOICE
from tests.languages.cute.conftest import needs_dsl
from tests.languages.cute.test_selections import HEAD, asks

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
    read = next(line for line in SOURCE.splitlines() if "table[" in line)
    twice = sum(read not in m.text for m in mutants)  # By whose index something is read.
    assert whole.count(", of=lambda: table)") == twice > 10
    pairs = sum("swapped" in m.edit for m in mutants)
    assert whole.count(f"{CHOICE}(") == len(mutants) + pairs + twice
    assert whole.count(", again=True)") == pairs + twice
    found = [run(one.text, monkeypatch, None) for one in mutants]
    for number, alone in enumerate(found):
        assert alone == run(
            whole, monkeypatch, lambda n, kept, edit, x=number, **_: edit() if n == x else kept
        ), mutants[number].edit
    as_it_is = run(SOURCE, monkeypatch, None)
    assert as_it_is == run(whole, monkeypatch, lambda _n, kept, _edit, **_: kept)
    assert len({str(one) for one in found}) > len(mutants) // 2


def test_a_source_holds_only_the_edits_that_are_wanted() -> None:
    one = next(m for m in Deriver(SOURCE).mutants() if "rows + first -> (rows)" in m.edit)
    text = CuteChoices().written(SOURCE, {one.edit: 5})
    assert text.count(CHOICE) == 1
    assert f"{CHOICE}(5, rows + first, lambda: rows)" in text


def test_an_index_of_several_is_no_pair_that_changes_places() -> None:
    source = "@cute.jit\ndef kept(x, r, j):\n    return x[(None, r, None), j]\n"
    edits = [one.edit for one in Deriver(source).mutants()]
    text = CuteChoices().written(source, {edit: n for n, edit in enumerate(edits)})
    assert text.count(CHOICE) == 2 * len(edits) + sum("swapped" in edit for edit in edits)


WRITES = """
@cute.jit
def total(lists, first):
    return (take(lists, first) >> 1) - first + lists.rest[take_any(lists) + 1] + (held(first) - 1)

def take_any(lists):
    return take(lists, 0)

def take(lists, first):
    lists.left[0] = first
    return first

def stop(lists):
    cute.arch.sync_threads()
    return lists.left[0]

def held(first):
    kept = first + 1
    return kept

@cute.jit
def waits(lists, first):
    return stop(lists) + first, first + stop(lists)
"""


def test_what_writes_is_not_evaluated_twice() -> None:
    numbers = {one.edit: n for n, one in enumerate(Deriver(WRITES).mutants())}
    text = CuteChoices().written(WRITES, numbers)
    beside: dict[int, set[str]] = {}
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Name(id=name), args=[ast.Constant(n), _, ast.Lambda(body=body)]):
                assert name == CHOICE
                beside.setdefault(n, set()).add(ast.unparse(body))
    edits = {edit.partition(" -> ")[2]: beside[n] for edit, n in numbers.items()}
    assert edits.pop("(held(first))") == {"held(first)"}
    assert edits["(first)"] == {"..."}, "what is dropped would write all the same"
    assert len(edits) == 7
    assert all(those == {"..."} for those in edits.values())


#: Number 3 does more than select, and number 11 only that.
PTX = (
    f"{HEAD}{asks(1, 3)}{asks(2, 11)}or.b32 %r10, %r1, 4;\n"
    "setp.eq.b32 %p2, %r2, 0;\nselp.b32 %r8, 1, 2, %p2;\nret;\n}\n"
)


def test_a_process_notes_what_it_could_choose_and_says_what_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choices, "_playing", None)
    choices.note(PTX)
    assert choices.environment() == 0
    taking = CuteChoices()
    taking.take(3)
    assert taking.taken() == frozenset()
    choices.note(PTX)
    assert (taking.taken(), choices.environment()) == ({3, 11}, FIRST + 3)
    assert taking.differing() == {3}  # Of the other one, a run says so.
    taking.take(0)
    assert (taking.taken(), choices.environment()) == (frozenset(), FIRST)
    taking.take(None)
    assert choices.environment() == 0


def test_kinds_are_those_of_every_place(tmp_path: Path) -> None:
    log = tmp_path / "kinds"
    assert CuteChoices().kinds(log) == {}
    log.write_text("4 run\n4 same\n7 other\n4 run\n")
    assert CuteChoices().kinds(log) == {4: {"run", "same"}, 7: {"other"}}


@needs_dsl
def test_a_choice_of_constants_is_none(tmp_path: Path) -> None:
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


KERNEL = '''
import cuda.bindings.driver as cuda
import cutlass
from cutlass import Float32, Int32, cute, range_constexpr


class Sums:
    """Each thread sums the first of a row of x [8, 4], and copies some of it."""

    width = 4

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, count: Int32, stream: cuda.CUstream):
        self.kernel(x, y, count).launch(grid=(2, 1, 1), block=(8, 1, 1), stream=stream)

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor, count: Int32):
        lane = cute.arch.thread_idx()[0] % 4
        lane = cutlass.min(lane, count)
        row = cute.arch.block_idx()[0] * 4 + lane
        total = Float32(0.0)
        for j in cutlass.range(count, unroll=1):
            total = total + x[row, j]
        held = cute.make_rmem_tensor(2, Float32)
        kept = cute.make_tensor(held.iterator + 1, cute.make_layout(1))
        kept[0] = total
        pairs = cute.make_rmem_tensor(cute.make_layout((2, 2)), Float32)
        for i in range_constexpr(4):
            pairs[i // 2, i % 2] = x[row, i]
        some = cute.make_rmem_tensor(cute.make_layout((2, 4), stride=(4, 1)), Float32)
        for i in range_constexpr(4):
            some[1, i] = x[row, i]
        if cute.arch.thread_idx()[0] < 4:
            y[row, 0] = held[1]
            for i in range_constexpr(2):
                y[row, 0] = y[row, 0] + some[i // 4 + 1, i] + x[lane, i]
            for column in range_constexpr(1, self.width):
                y[row, column] = x[row, self.width - 1 - column] + pairs[column // 2, column % 2]
'''


@pytest.fixture
def own_process(tmp_path: Path) -> Callable[..., Any]:
    """Runs the kernel of a text in a process of its own, as the judge of wrong kernels does."""

    def of(text: str, numbers: tuple[int | None, ...]) -> list[Any]:
        name = f"sums_{zlib.crc32(text.encode())}"
        # What is kept of an earlier run of the test would not trace it again.
        (tmp_path / f"{name}.py").write_text(f"{text}# {tmp_path}\n")
        work = {0: functools.partial(_sums, tmp_path, name, numbers)}
        ((_, ended),) = forked.run(work, folder=tmp_path, workers=1, timeout=300.0, explain=repr)
        assert ended.result is not None, ended.failure
        return ended.result

    return of


def _sums(
    folder: Path, name: str, chosen_: tuple[int | None, ...]
) -> list[tuple[list[float], int, frozenset[int]]]:
    import torch

    from mla_var3.languages.cute import emulation

    sys.path.insert(0, str(folder))
    host = importlib.import_module(name).Sums()
    choosing, found = CuteChoices(), []
    choosing.play(folder / "kinds")
    for number in chosen_:
        choosing.take(number)
        x, y = torch.arange(32.0).reshape(8, 4), torch.zeros(8, 4)
        done = emulation.execute("sums", host, (x, y, 3), (y,))
        values = torch.nan_to_num(y).flatten().tolist()
        found.append((values, len(done.diagnostics), choosing.differing()))
    return found


@pytest.mark.slow
@needs_dsl
def test_what_is_chosen_in_one_build_is_what_a_build_of_its_own_gives(
    own_process: Callable[..., Any], tmp_path: Path
) -> None:
    mutants = {one.edit: one for one in Deriver(KERNEL).mutants()}
    wanted = [
        "kernel: index modulo 2: j -> (j) % 2",
        "kernel: dropped operand: cute.arch.block_idx()[0] * 4 + lane -> "
        "(cute.arch.block_idx()[0] * 4)",
        "kernel: dropped operand: total + x[row, j] -> (total)",
        "kernel: index 0: column // 2 -> 0",
        "kernel: swapped indices: column // 2, column % 2 -> column % 2, column // 2",
        "kernel: dropped operand: i // 4 + 1 -> (i // 4)",
        "kernel: swapped indices: lane, i -> i, lane",
        "kernel: dropped operand: self.width - 1 -> (self.width)",
        "kernel: dropped operand: held.iterator + 1 -> (held.iterator)",
        "kernel: dropped bound: cutlass.min(lane, count) -> (lane)",
        "kernel: index 0: i // 2 -> 0",
    ]
    whole = CuteChoices().written(KERNEL, {edit: n for n, edit in enumerate(wanted)})
    runs = own_process(whole, (None, 0, 1, 2, 3, 4, 5))
    as_it_is, *together = [run[:2] for run in runs]
    alone = [own_process(mutants[edit].text, (None,))[0][:2] for edit in wanted[:6]]
    assert together == alone
    assert as_it_is == own_process(KERNEL, (None,))[0][:2]
    # No lane is beyond the count, so that the bound of number 9 changes nothing.
    # Of number 6 the half that is chosen differs, which a compile of its own judges.
    assert runs[0][2] == {0, 1, 2, 3, 4, 5, 6}
    assert len({str(one) for one in (as_it_is, *alone)}) == 7
    kinds = CuteChoices().kinds(tmp_path / "kinds")
    # What is written where is for a compile, and what is read of memory that others write.
    assert {n for n, those in kinds.items() if "other" in those} == {6, 7, 8, 10}
    assert {n for n, those in kinds.items() if those == {"run"}} == {0, 1, 2, 5, 9}
    assert kinds[3] == kinds[4] == {"run", "same"}
