"""Branches of PTX by the line that decides them."""

from __future__ import annotations

import pytest

from mla_var3.gpuless.ptx import parse
from mla_var3.languages.cute.branches import Branch, branches

SOURCE = """\
@cute.kernel
def kernel(self, a):
    if row < rows:
        a.store()
    for i in cutlass.range(count):
        for j in range_constexpr(2):
            a.load(i)
        if last & (i > 3):
            for k in cutlass.range(i):
                a.add(k)
"""

HOST = ".loc 1 1 0"  # what the DSL gives to all that it has no line for


@pytest.fixture
def of(tmp_path):
    """The branches of a body, whose lines are those of SOURCE."""
    file = tmp_path / "k.py"
    file.write_text(SOURCE, encoding="utf-8")

    def found(body):
        text = (
            ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry kernel()\n{\n"
            f'.reg .pred %p<9>;\n.reg .b32 %r<9>;\n{body}\nret;\n}}\n.file 1 "{file}"\n'
        )
        return list(branches(parse(text).kernel()))

    return found


def test_a_branch_is_of_the_line_of_its_condition(of):
    body = f".loc 1 3 7\nsetp.ge.s32 %p1, %r1, %r2;\n{HOST}\n@%p1 bra END;\nmov.b32 %r1, 0;\nEND:"
    assert of(body) == [Branch(1, "jump", (1, 3))]


@pytest.mark.parametrize("joined", ["not.pred %p3, %p1", "or.pred %p3, %p2, %p1"])
def test_conditions_are_joined_where_nobody_wrote_a_line(of, joined):
    body = (
        f".loc 1 8 11\nsetp.gt.s32 %p1, %r1, 3;\n{HOST}\nsetp.ne.b32 %p2, %r2, 0;\n{joined};\n"
        "@!%p3 bra END;\nmov.b32 %r1, 0;\nEND:"
    )
    assert of(body) == [Branch(3, "jump", (1, 8))]


def test_a_condition_made_anew_is_of_its_last_line(of):
    body = (
        ".loc 1 3 7\nsetp.ge.s32 %p1, %r1, %r2;\n.loc 1 8 11\nsetp.gt.s32 %p1, %r1, 3;\n"
        f"{HOST}\n@%p1 bra END;\nEND:"
    )
    assert of(body) == [Branch(2, "jump", (1, 8))]


def test_a_loop_without_a_condition_is_of_the_line_that_begins_it(of):
    body = (
        f"{HOST}\nsetp.lt.s32 %p1, %r1, 1;\n@%p1 bra END;\nLOOP:\n.loc 1 7 12\n"
        f"add.s32 %r2, %r2, 1;\n{HOST}\nsetp.lt.s32 %p2, %r2, %r1;\n@%p2 bra LOOP;\nEND:"
    )
    assert of(body) == [Branch(1, "skip", (1, 5)), Branch(4, "again", (1, 5))]


def test_a_loop_within_another_is_told_apart_from_it(of):
    body = (
        f"OUTER:\n.loc 1 7 12\nadd.s32 %r1, %r1, 1;\n{HOST}\n@%p1 bra AFTER;\nINNER:\n"
        f".loc 1 10 16\nadd.s32 %r2, %r2, 1;\n{HOST}\n@%p2 bra INNER;\nAFTER:\n"
        f".loc 1 7 12\nadd.s32 %r3, %r3, 1;\n{HOST}\n@%p3 bra OUTER;"
    )
    assert of(body) == [
        Branch(1, "skip", (1, 9)), Branch(3, "again", (1, 9)), Branch(5, "again", (1, 5)),
    ]  # fmt: skip


def test_a_wait_is_of_its_own_line(of):
    body = ".loc 1 4 9\nWAIT:\nsetp.eq.b32 %p1, %r1, 0;\n@%p1 bra WAIT;"
    assert of(body) == [Branch(1, "turn", (1, 4))]


def test_what_goes_one_way_or_around_nothing_of_ours_is_left_out(of):
    body = f"{HOST}\nbra.uni END;\n@%p1 bra END;\n.loc 1 4 9\nmov.b32 %r1, 0;\nEND:"
    assert of(body) == []
