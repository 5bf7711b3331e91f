"""Undetermined elements move as values do, and are forgotten where a value takes their place."""

from __future__ import annotations

import re

import cuda.tile as ct
import pytest
import torch

from mla_var3.interpreter import LaunchReport

from .helpers import run

Int = ct.Constant[int]


@ct.kernel
def moved(x, y, out, OP: Int, TURNS: Int):
    """Of a tile the last row is undetermined in the first turn, and nothing in the last."""
    clean = ct.load(y, (0, 0), (4, 4))
    for turn in range(TURNS):
        a = ct.load(x, (TURNS - 1 - turn, 0), (4, 4))
        if OP == 0:
            b = ct.cat((a, clean), axis=0)
        elif OP == 1:
            b = ct.cat((clean, a), axis=1)
        elif OP == 2:
            b = ct.extract(a, (1, 1), (2, 2))
        elif OP == 3:
            b = ct.extract(a, (0, 0), (2, 4))
        elif OP == 4:
            b = ct.insert(clean, (0, 0), ct.extract(a, (1, 0), (2, 4)))
        elif OP == 5:
            b = ct.insert(a, (1, 0), ct.extract(clean, (1, 0), (2, 4)))
        elif OP == 6:
            b = ct.insert(a, (0, 1), ct.extract(a, (3, 0), (1, 1)))
        elif OP == 7:
            b = ct.permute(a, (1, 0))
        elif OP == 8:
            b = ct.reshape(a, (2, 8))
        elif OP == 9:
            b = ct.broadcast_to(ct.extract(a, (3, 0), (1, 4)), (4, 4))
        elif OP == 10:
            b = ct.broadcast_to(ct.extract(a, (0, 3), (4, 1)), (4, 4))
        elif OP == 11:
            b = ct.where(clean > 5.0, a, clean)
        elif OP == 12:
            b = ct.where(clean > 5.0, clean, a)
        elif OP == 13:
            b = ct.where(a > 100.0, clean, clean + 1.0)
        elif OP == 14:
            b = a + clean
        elif OP == 15:
            b = ct.exp(a)
        elif OP == 16:
            b = ct.sum(a, axis=0, keepdims=True)
        elif OP == 17:
            b = ct.sum(a, axis=1, keepdims=True)
        elif OP == 18:
            b = ct.cumsum(a, axis=0)
        elif OP == 19:
            b = ct.max(a, axis=1, keepdims=True)
        elif OP == 20:
            b = ct.mma(a, clean, ct.zeros((4, 4), ct.float32))
        elif OP == 21:
            b = ct.mma(clean, a, ct.zeros((4, 4), ct.float32))
        elif OP == 22:
            b = ct.astype(a, ct.float16)
        elif OP == 23:
            b = ct.bitcast(a, ct.int32)
        elif OP == 24:
            b = ct.expand_dims(a, 0)
        elif OP == 25:
            b = ct.cumsum(a, axis=1, reverse=True)
        elif OP == 26:
            b = -a
        else:
            b = ct.minimum(a, clean)
        if turn == TURNS - 1:
            size = b.shape[0] * b.shape[1] * (b.shape[2] if OP == 24 else 1)
            ct.store(out, (0,), ct.reshape(ct.astype(b, ct.float32), (size,)))


#: How many elements of each result hang on the last row of the first operand.
ELEMENTS = {
    0: 4, 1: 4, 2: 2, 3: 0, 4: 4, 5: 0, 6: 5, 7: 4, 8: 4, 9: 16, 10: 4, 11: 4, 12: 0, 13: 4,
    14: 4, 15: 4, 16: 4, 17: 1, 18: 4, 19: 1, 20: 4, 21: 16, 22: 4, 23: 4, 24: 4, 25: 4, 26: 4,
    27: 4,
}  # fmt: skip


def said(report: LaunchReport) -> list[int]:
    """How many undetermined elements were stored, by each finding."""
    texts = [d.message for d in report.diagnostics if d.kind == "undetermined-padding"]
    found = [re.search(r"\((\d+) elements\)", text) for text in texts]
    return [int(one[1]) if one else 1 for one in found]


@pytest.mark.parametrize("op", ELEMENTS)
def test_undetermined_elements_move_with_the_values(op: int) -> None:
    x, y, out = torch.ones(3, 4), torch.arange(16.0).view(4, 4), torch.zeros(32)
    wanted = [ELEMENTS[op]] if ELEMENTS[op] else []
    assert said(run(moved, x, y, out, op, 1)) == wanted


@pytest.mark.parametrize("op", ELEMENTS)
def test_what_is_made_again_from_determined_ones_is_determined(op: int) -> None:
    x, y, out = torch.ones(7, 4), torch.arange(16.0).view(4, 4), torch.zeros(32)
    assert said(run(moved, x, y, out, op, 2)) == []


@ct.kernel
def packed(x, out):
    ct.store(out, (0,), ct.pack_to_bytes(ct.load(x, (0,), (4,))))


@ct.kernel
def unpacked(x, out):
    ct.store(out, (0,), ct.unpack_from_bytes(ct.load(x, (0,), (16,)), ct.float32))


@pytest.mark.parametrize(("given", "elements"), [(3, 4), (2, 8), (4, 0)])
def test_bytes_of_undetermined_elements_are_undetermined(given: int, elements: int) -> None:
    report = run(packed, torch.ones(given), torch.zeros(16, dtype=torch.uint8))
    assert said(report) == ([elements] if elements else [])


@pytest.mark.parametrize(("given", "elements"), [(12, 1), (15, 1), (11, 2), (1, 4), (16, 0)])
def test_elements_of_undetermined_bytes_are_undetermined(given: int, elements: int) -> None:
    report = run(unpacked, torch.zeros(given, dtype=torch.uint8), torch.zeros(4))
    assert said(report) == ([elements] if elements else [])


@ct.kernel
def indexed(x, n, out, OP: Int):
    a = ct.load(n, (0,), (4,))
    if OP == 0:
        at = a + a
    elif OP == 1:
        at = a - ct.full((4,), -2147483647, ct.int32)
    elif OP == 2:
        at = a * 4
    else:
        at = (a + a) * 2 - a
    ct.store(out, (0,), ct.gather(x, (at & 3,)))


@pytest.mark.parametrize("op", range(4))
def test_an_index_that_wrapped_is_followed_to_the_address(op: int) -> None:
    x, out = torch.arange(4.0), torch.zeros(4)
    small = torch.tensor([-4, -3, -2, -1] if op == 1 else [0, 1, 2, 3], dtype=torch.int32)
    assert run(indexed, x, small, out, op, numerics=True).diagnostics == []
    large = small.clone()
    large[2] = 2**30 + 1 if op != 1 else 5
    [found] = run(indexed, x, large, out, op, numerics=True).diagnostics
    assert (found.kind, found.severity) == ("index-overflow", "warning")


def test_origins_past_the_last_bit_share_it() -> None:
    from mla_var3.interpreter.taint import _BITS, Origin, Origins

    origins = Origins()
    bits = [origins.bit(Origin("load", ("k.py", line))) for line in range(_BITS + 3)]
    assert bits == [1 << min(line, _BITS - 1) for line in range(_BITS + 3)]
    assert len(origins.named(1 << (_BITS - 1))) == 4
    assert [one.where for one in origins.named(0b101)] == [("k.py", 0), ("k.py", 2)]


@ct.kernel
def both(x, n, out, OP: Int):
    a = ct.load(x, (0,), (8,))
    b = ct.load(n, (0,), (8,))
    if OP == 0:
        c = a // b
    elif OP == 1:
        c = a << b
    elif OP == 2:
        c = a >> b
    elif OP == 3:
        c = a % b
    else:
        c = ct.cdiv(a, b)
    ct.store(out, (0,), c)


@pytest.mark.parametrize("op", range(5))
@pytest.mark.parametrize("padded", range(3))
@pytest.mark.parametrize("undefined", range(3))
def test_what_an_operation_leaves_open_is_told_beside_its_operands(
    op: int, padded: int, undefined: int
) -> None:
    """Elements that are undetermined before it, and elements of which its result is none."""
    bad = 32 if op in (1, 2) else 0
    n = torch.tensor([bad] * undefined + [1] * (8 - undefined), dtype=torch.int32)
    x, out = torch.ones(8 - padded, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
    report = run(both, x, n, out, op)
    made = "shift-range" if op in (1, 2) else "division-by-zero"
    counts = {}
    for one in report.diagnostics:
        found = re.search(r"\((\d+) elements\)", one.message)
        counts[one.kind] = int(found[1]) if found else 1
    # How many elements are open for whatever reason.
    every = padded + undefined
    wanted = {"undetermined-padding": padded, made: undefined}
    assert counts == {kind: every for kind, count in wanted.items() if count}


@ct.kernel
def divided_by_a_combiner(x, out):
    def quotient(a, b):
        return a // b

    tile = ct.load(x, (0,), (4,))
    ct.store(out, (0,), ct.reduce(tile, axis=0, func=quotient, identity=1, keepdims=True))


def test_a_division_by_zero_in_a_combiner_is_told_at_once() -> None:
    out = torch.zeros(1, dtype=torch.int32)
    for values, found in (([64, 2, 2, 2], []), ([64, 2, 0, 2], ["division-by-zero"])):
        report = run(divided_by_a_combiner, torch.tensor(values, dtype=torch.int32), out)
        assert [d.kind for d in report.diagnostics] == found
    assert "reaches a reduction or scan" in report.diagnostics[0].message


@ct.kernel
def opened(x, out):
    ct.store(out, (0,), ct.load(x, (0,), (4,)))


@pytest.mark.parametrize(
    ("dtype", "shown"),
    [
        (torch.bool, True), (torch.int8, -0x5B), (torch.uint8, 0xA5), (torch.int16, -0x5A5B),
        (torch.uint16, 0xA5A5), (torch.int32, -0x2A5A5A5B), (torch.uint32, 0xD5A5A5A5),
        (torch.int64, 0x5DEECE66D5A5A5A5),
    ],
)  # fmt: skip
def test_what_is_open_is_a_number_that_stands_out(dtype: torch.dtype, shown: int) -> None:
    """The poison of integers wrapped to their width; of conditions True."""
    out = torch.zeros(4, dtype=dtype)
    run(opened, torch.zeros(2, dtype=dtype), out)
    assert out.tolist() == [0, 0, shown, shown]


@ct.kernel
def batched(x, y, out, SECOND: Int):
    a = ct.load(x, (0, 0, 0), (2, 4, 4), padding_mode=ct.PaddingMode.ZERO)
    b = ct.load(y, (0, 0, 0), (2, 4, 4))
    c = (
        ct.mma(b, a, ct.zeros((2, 4, 4), ct.float32))
        if SECOND == 0
        else ct.mma(a, b, ct.zeros((2, 4, 4), ct.float32))
    )
    ct.store(out, (0, 0, 0), c)


@pytest.mark.parametrize("second", [0, 1])
@pytest.mark.parametrize(("rows", "columns"), [(4, 3), (3, 4), (4, 4), (4, 2)])
def test_products_of_a_batch_are_open_in_their_rows_or_columns(
    second: int, rows: int, columns: int
) -> None:
    """Of both batches, those that an undetermined element has a part in."""
    out = torch.zeros(2, 4, 4)
    report = run(batched, torch.ones(2, 4, 4), torch.ones(2, rows, columns), out, second)
    open_ = rows < 4 or columns < 4
    if second:  # Columns of the second operand; a row that is open is a part of every column.
        count = 2 * (16 if rows < 4 else 4 * (4 - columns))
    else:
        count = 2 * (16 if columns < 4 else 4 * (4 - rows))
    assert said(report) == ([count] if open_ else [])
