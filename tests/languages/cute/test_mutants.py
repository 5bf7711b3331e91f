"""Wrong kernels that are derived from a CuTe DSL source."""

from __future__ import annotations

import ast

import pytest

from mla_var3.languages.cute.mutants import Deriver

SOURCE = """
class Kernel:
    def __init__(self, tiles):
        self.tiles = tiles + 1

    def items(self, rows: tuple[int, str]):
        return cute.ceil_div(rows, 64)

    @cute.kernel
    def multiply(self, a, keys):
        block = cute.arch.block_idx()[0]
        for i in cutlass.range(keys, unroll=1):
            a[i, block, None] = cutlass.min(block, 3)
        for i in cutlass.range(block, keys, unroll=1):
            if i < keys:
                pass


def host(rows):
    return rows + 1
"""
EDITS = [
    "items: dropped rest: cute.ceil_div(rows, 64) -> ((rows) // (64))",
    "multiply: block 0: cute.arch.block_idx()[0] -> cutlass.Int32(0)",
    "multiply: loop of 1: keys -> cutlass.min(keys, (0) + 1)",
    "multiply: loop of 3: keys -> cutlass.min(keys, (0) + 3)",
    "multiply: loop of 1: keys -> cutlass.min(keys, (block) + 1)",
    "multiply: loop of 3: keys -> cutlass.min(keys, (block) + 3)",
    "multiply: index 0: i -> 0",
    "multiply: index modulo 2: i -> (i) % 2",
    "multiply: index 0: block -> 0",
    "multiply: index modulo 2: block -> (block) % 2",
    "multiply: swapped indices: i, block -> block, i",
    "multiply: dropped bound: cutlass.min(block, 3) -> (block)",
    "multiply: edge: i < keys -> i <= keys",
]


#: Types, which have a dtype and an extent between their brackets.
TYPED = """
class Kernel:
    @cute.jit
    def prepare(self, stages, i):
        @cute.struct
        class Storage:
            full: cute.struct.MemRange[cutlass.Int64, stages]
            a: cute.struct.Align[cute.struct.MemRange[dtype, stages * 64], 1024]
            other: Optional[cutlass.Int64, stages]

        peer = cute.struct.MemRange[Float32, stages]
        memory, align = cute.struct.MemRange, cute.struct.Align
        fields = {"q": align[memory[dtype, stages], 1024], "free": memory[cutlass.Int64, i]}
        self.keep[i, None] = fields
"""


def test_a_dtype_is_no_index() -> None:
    edits = {one.edit.partition(" #")[0] for one in Deriver(TYPED).mutants()}
    edited = {"stages", "stages * 64", "i"}
    kinds = {"index 0": "0", "index modulo 2": "({}) % 2"}
    assert edits == {
        f"prepare: {kind}: {what} -> {put.format(what)}"
        for what in edited
        for kind, put in kinds.items()
    }


def test_every_kind_of_edit_is_derived_from_traced_code_alone() -> None:
    assert sorted(one.edit for one in Deriver(SOURCE).mutants()) == sorted(EDITS)


@pytest.mark.parametrize("one", list(Deriver(SOURCE).mutants()), ids=lambda one: one.edit)
def test_a_mutant_differs_in_one_expression(one) -> None:
    ast.parse(one.text)
    put = one.edit.rpartition(" -> ")[2]
    assert put in one.text
    assert SOURCE.count("\n") == one.text.count("\n")


def test_a_wait_keeps_the_last_bit_of_its_parity() -> None:
    source = """
@cute.jit
def wait(full, turn, i):
    cute.arch.mbarrier_wait(full, (turn & 1) ^ 1)
    cute.arch.mbarrier_wait(full, turn // 2 & 1)
    cute.arch.mbarrier_wait(full, turn & 3)
    other = turn & 1
"""
    assert [one.edit for one in Deriver(source).mutants()] == [
        "wait: dropped operand: (turn & 1) ^ 1 -> (turn & 1)",
        "wait: dropped operand: turn // 2 -> (turn)",
        "wait: dropped operand: turn & 3 -> (turn)",
        "wait: dropped operand: turn & 1 -> (turn)",
    ]


@pytest.mark.parametrize(
    ("line", "derived"),
    [
        ('cute.arch.inline_ptx("prefetch.global.L2 [{$r0}];", read_only_args=[at])', False),
        ('cute.arch.inline_ptx("st.global.b64 [{$r0}], 0;", read_only_args=[at])', True),
        ("rows[0] = at", True),
        ("return at", True),
    ],
)
def test_what_only_prefetches_is_left_as_it_is(line: str, derived: bool) -> None:
    source = f"""
@cute.jit
def send_for(rows, lane):
    at = rows + 8 * lane
    cute.prefetch(at)
    {line}
"""
    assert any(Deriver(source).mutants()) == derived
