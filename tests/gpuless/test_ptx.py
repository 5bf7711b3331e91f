# ruff: noqa: E501  # A PTX statement stays on its line.
"""Reading PTX, and refusing in one sentence what is not PTX or asks for too much."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.errors import EmulatorError, UnknownNameError
from mla_var3.gpuless.ptx import parse, split_arguments
from tests.emulator.kernels import ALL, GEMM, RING


def said(text: str) -> str:
    """What refuses a text; nothing if it is read."""
    try:
        parse(text)
    except EmulatorError as error:
        return str(error)
    return ""


HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def test_parameters_are_laid_out_by_alignment() -> None:
    head = (
        ".visible .entry k(.param .u8 a, .param .align 64 .b8 m[128], .param .u32 n, .param .u64 p)"
    )
    kernel = parse(HEAD + head + "\n{ ret; }").kernel()
    assert [(p.offset, p.size) for p in kernel.parameters] == [
        (0, 1),
        (64, 128),
        (192, 4),
        (200, 8),
    ]
    assert kernel.parameter_bytes == 208


def test_scopes_keep_their_own_names() -> None:
    kernel = RING.ptx()
    labels = parse(kernel).kernel().labels
    loops = [name for name in labels if name.startswith("W@")]
    assert len(loops) == 2


def test_lines_of_inline_assembly_are_those_before_it() -> None:
    text = HEAD + (
        ".visible .entry k()\n{\n.reg .b32 %r<2>;\n.loc 1 7 0\nmov.u32 %r0, 1;\n// begin inline asm\n"
        '.loc 1 99 0\nmov.u32 %r1, 2;\n// end inline asm\nret;\n}\n.file 1 "a//b.py"'
    )
    kernel = parse(text).kernel()
    assert [i.line for i in kernel.instructions] == [(1, 7)] * 3
    assert kernel.files == {1: "a//b.py"}


def test_kernels_are_named() -> None:
    text = HEAD + ".entry a() { ret; } .entry b() { ret; }"
    assert parse(text).kernel("b").name == "b"
    with pytest.raises(UnknownNameError, match="known: a, b"):
        parse(text).kernel("c")


def test_arguments_keep_their_brackets() -> None:
    text = "{%r1, %r2}, [%rd1, {%r3, %r4}], [%r5+8], 1"
    assert split_arguments(text) == ["{%r1, %r2}", "[%rd1, {%r3, %r4}]", "[%r5+8]", "1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no .target"),
        ("hello", "no .target"),
        (HEAD, "no .entry"),
        (HEAD + ".entry k(", "ends before the body"),
        (HEAD + ".entry k() { mov.u32 %r1, 1;", "closing brace is missing"),
        (HEAD + ".entry k() { mov.u32 %r1, 1 }", "inside a statement"),
        (HEAD + ".entry k() { bra L; }", "no label 'L'"),
        (HEAD + ".entry k() { .reg .b32 %r<999999999>; ret; }", "999999999 registers"),
        (HEAD + ".entry k() { .shared .b8 s[999999999]; ret; }", "bytes of shared memory"),
        (HEAD + ".entry k() { .local .b8 s[999999999]; ret; }", "bytes of local memory"),
        (HEAD + ".entry k() { 12 34; }", "not a PTX statement"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(EmulatorError, match=said):
        parse(text)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(ALL)), st.floats(0, 1))
def test_cut_short_it_is_refused_or_read(name: str, share: float) -> None:
    text = ALL[name].ptx()
    assert "\n" not in said(text[: int(len(text) * share)])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_garbled_it_is_refused_or_read(data: st.DataObject) -> None:
    text = GEMM.ptx()
    at = data.draw(st.integers(0, len(text) - 1))
    junk = data.draw(st.text(alphabet="{}[];,.%@!$:()ab09 \n", max_size=4))
    assert "\n" not in said(text[:at] + junk + text[at + 3 :])


def test_local_arrays_are_no_line_directives() -> None:
    text = HEAD + ".entry k() {\n.local .align 8 .b8 depot[24];\nret;\n}"
    assert [v.size for v in parse(text).kernel().variables.values()] == [24]


def test_a_pointer_parameter_has_its_own_name() -> None:
    text = (
        ".version 8.8\n.target sm_90a\n.address_size 64\n"
        ".visible .entry k(.param .u64 .ptr .global .align 1 k_param_0, .param .u64 .ptr a, "
        ".param .align 64 .b8 map[128])\n{\nret;\n}\n"
    )
    parameters = parse(text).kernel(None).parameters
    assert [(p.name, p.offset, p.size) for p in parameters] == [
        ("k_param_0", 0, 8), ("a", 8, 8), ("map", 64, 128),
    ]  # fmt: skip
