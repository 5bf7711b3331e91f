"""Instructions done at once give what they give one by one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.emulator import functions as fn
from mla_var3.emulator.launcher import launch
from mla_var3.emulator.program import Program
from mla_var3.gpuless.ptx import parse

REGISTERS, THREADS = 16, 32
FORMS = (
    "mul.f32 {d}, {a}, {b};",
    "sub.f32 {d}, {a}, {b};",
    "fma.rn.f32 {d}, {a}, {b}, {c};",
    "max.f32 {d}, {a}, {b};",
    "ex2.approx.ftz.f32 {d}, {a};",
    "cvt.rn.f16x2.f32 {d}, {a}, {b};",
    "cvt.rn.bf16x2.f32 {d}, {a}, {b};",
    "add.f32 {d}, {a}, 0f3F000000;",
    "add.u32 {d}, {a}, {n};",
    "shl.b32 {d}, {a}, {n};",
    "shr.s32 {d}, {a}, {n};",
    "and.b32 {d}, {a}, {n};",
    "setp.ne.s32 {p}, {a}, {n};",
    "not.b32 {d}, {a};",
    "cvt.rn.f32.u32 {d}, {a};",
    "mov.b32 {d}, 0f40000000;",
    "add.u32 {d}, {a}, {b};",
    "setp.lt.f32 {p}, {a}, {b};",
    "selp.f32 {d}, {a}, {b}, {p};",
    "@{p} mov.b32 {d}, {a};",
    "shfl.sync.bfly.b32 {d}, {a}, 1, 31, -1;",
)
REGISTER = st.integers(0, REGISTERS - 1).map("%x{}".format)
PREDICATE, NUMBER = st.sampled_from(["%q0", "%q1"]), st.integers(0, 40)
OPERANDS = st.tuples(REGISTER, REGISTER, REGISTER, REGISTER, PREDICATE, NUMBER)


@st.composite
def unrolled(draw: st.DrawFn) -> list[str]:
    """A few forms many times over, so that many stand at one level."""
    forms = draw(st.lists(st.sampled_from(FORMS), min_size=1, max_size=3))
    return [
        draw(st.sampled_from(forms)).format(**dict(zip("dabcpn", operands, strict=True)))
        for operands in draw(st.lists(OPERANDS, min_size=20, max_size=60))
    ]


def program(body: list[str]) -> Program:
    """Registers loaded from an input, the body, and all of them stored."""
    loads = [f"ld.global.b32 %x{i}, [%in+{128 * i}];" for i in range(REGISTERS)]
    stores = [f"st.global.b32 [%out+{128 * i}], %x{i};" for i in range(REGISTERS)]
    lines = "\n".join([*loads, *body, *stores])
    return Program(
        parse(f"""
        .version 8.6
        .target sm_90a
        .address_size 64
        .visible .entry kernel(.param .u64 a, .param .u64 b) {{
          .reg .b32 %x<{REGISTERS}>; .reg .pred %q<2>, %s;
          .reg .b32 %t, %o; .reg .b64 %w, %in, %out;
          mov.u32 %t, %tid.x; mul.wide.u32 %w, %t, 4;
          ld.param.u64 %in, [a]; add.s64 %in, %in, %w;
          ld.param.u64 %out, [b]; add.s64 %out, %out, %w;
          setp.lt.u32 %q0, %t, 7; setp.lt.u32 %q1, %t, 20;
          {lines}
          ret;
        }}""")
    )


def result(made: Program, values: np.ndarray) -> np.ndarray:
    out = np.zeros_like(values)
    launch(made, [values, out], 1, THREADS)
    return out


@settings(max_examples=20, deadline=None)
@given(body=unrolled(), seed=st.integers(0, 2**32 - 1))
def test_any_order_and_mix_gives_the_same_bits(body: list[str], seed: int) -> None:
    bits = np.random.default_rng(seed).integers(0, 2**32, (REGISTERS, THREADS), np.uint64)
    values = bits.astype(np.uint32)
    values[::2] = np.random.default_rng(seed).normal(size=values[::2].shape).astype("f4").view("u4")
    together, alone = program(body), program(body)
    alone.segments = {
        pc: replace(segment, batched=segment.source) for pc, segment in alone.segments.items()
    }
    np.testing.assert_array_equal(result(together, values), result(alone, values))


@settings(max_examples=20, deadline=None)
@given(body=unrolled(), seed=st.integers(0, 2**32 - 1))
def test_threads_that_are_no_slice_get_the_same_bits(body: list[str], seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=(REGISTERS, THREADS)).astype("f4").view("u4")
    body = [line for line in body if "shfl" not in line]
    odd = ["and.b32 %o, %t, 1;", "setp.ne.u32 %s, %o, 0;", "@!%s bra DONE;"]
    every = result(program(body), values)
    some = result(program([*odd, *body, "DONE:"]), values)
    np.testing.assert_array_equal(some[:, 1::2], every[:, 1::2])
    np.testing.assert_array_equal(some[:, ::2], values[:, ::2])


def test_an_unrolled_loop_becomes_a_line_per_operation() -> None:
    body = [f"mul.f32 %x{i}, %x{i}, %x0;\nex2.approx.ftz.f32 %x{i}, %x{i};" for i in range(1, 8)]
    (segment,) = (s for s in program(body).segments.values() if "np.exp2" in s.source)
    assert segment.source.count("np.exp2") == 7
    assert segment.batched.count("np.exp2") == 1


@pytest.mark.parametrize("low", [-40, -26, -16, -4])
def test_halves_are_numpys_to_the_bit(low: int) -> None:
    random = np.random.default_rng(-low)
    x = np.ldexp(random.normal(size=4096), random.integers(low, low + 12, 4096)).astype(np.float32)
    x[:8] = [0, -0.0, np.nan, np.inf, 2.0**-24, -(2.0**-25), 1.5 * 2.0**-24, 2.0**-14]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(fn.half(x), x.astype(np.float16).view(np.uint16))
