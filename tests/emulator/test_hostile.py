# ruff: noqa: E501  # A PTX statement stays on its line.
"""Launches and kernels that cannot be: one sentence, in bounded time and memory."""

import numpy as np
import pytest

from mla_var3.emulator.launcher import launch
from mla_var3.emulator.options import Options, model
from mla_var3.errors import EmulatorError
from tests.emulator.kernels import MIRROR

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k() {\n.loc 1 42 0\n"
TAIL = '\n}\n.file 1 "kernel.py"\n'


def run(body: str, **options: object) -> None:
    launch(HEAD + body + TAIL, [], 1, 32, options=Options(max_steps=2000), **options)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("L: bra L;", r"without an end.*kernel\.py:42"),
        (".reg .pred %p<1>; L: setp.eq.u32 %p0, 0, 0; @%p0 bra L; ret;", r"without an end"),
        ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [0], 32; ret;", r"kernel\.py:42 \(tcgen05\.alloc"),
        ("frobnicate.u32 %r1, 2; ret;", r"the instruction frobnicate\.u32 is not emulated at kernel\.py:42"),
        ("call.uni nobody, (); ret;", r"the call of nobody is not emulated"),
        ("trap;", r"stops itself"),
        ("mov.u32 %r99, 1; ret;", r"mov\.u32 is not emulated"),
        (f"ret; st.global.b{'9' * 5000} [0], 1;", r"b9+' is not a type of PTX"),
        (".reg .b32 %r<2>; mul.lo.u32 %r1; ret;", r"mul\.lo\.u32 is not emulated"),
    ],
)  # fmt: skip
def test_one_sentence(body: str, said: str) -> None:
    with pytest.raises(EmulatorError, match=said) as caught:
        run(body)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("grid", "block", "cluster", "shared", "said"),
    [
        (1, 2048, 1, 0, "2048 threads"),
        (1, 0, 1, 0, "0 threads"),
        (0, 32, 1, 0, "a grid of"),
        ((1, 70000, 1), 32, 1, 0, "a grid of"),
        (32, 32, 32, 0, "32 CTAs"),
        (3, 32, 2, 0, "does not divide"),
        (1, 32, 1, 10**9, "bytes of shared memory"),
        (1, 32, 1, -1, "bytes of shared memory"),
    ],
)
def test_impossible_launches(
    grid: object, block: object, cluster: object, shared: int, said: str
) -> None:
    with pytest.raises(EmulatorError, match=said):
        launch(HEAD + "ret;" + TAIL, [], grid, block, cluster=cluster, shared=shared)


def test_arguments_must_fit() -> None:
    x = np.zeros(4, "f4")
    with pytest.raises(EmulatorError, match="takes 3 arguments, and 1 are given"):
        launch(MIRROR.ptx(), [x], 1, 128)
    with pytest.raises(EmulatorError, match="has 3 bytes, and 8 are expected"):
        launch(MIRROR.ptx(), [b"abc", x, 1], 1, 128)


def test_models_are_named() -> None:
    assert model("strict").name == "strict"
    with pytest.raises(EmulatorError, match="known: default, strict"):
        model("lenient")


def test_a_null_pointer_is_out_of_bounds() -> None:
    out = np.zeros((3, 128), "f4")
    done = launch(MIRROR.ptx(), [0, out, 3], 1, 128)
    assert {d.kind for d in done.diagnostics} == {"out-of-bounds"}
    assert done.diagnostics[0].at.line == MIRROR.line("fetch")
