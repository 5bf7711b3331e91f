# ruff: noqa: E501  # A PTX statement stays on its line.
"""Accesses to each kind of memory: parameters at any byte, and what is said of a bad address."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from mla_var3.emulator.access import Parameters
from mla_var3.emulator.options import Options
from mla_var3.errors import EmulatorError
from tests.emulator.events import Snippet


@pytest.mark.parametrize(("width", "code"), [(1, "B"), (2, "H"), (4, "I"), (8, "Q")])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_parameters_are_read_at_any_byte(width: int, code: str, count: int) -> None:
    block = bytes(np.random.default_rng(width).integers(0, 256, 61, np.uint8))
    held = Parameters(block)
    padded = block + bytes(64)
    for at in range(33):
        wanted = struct.unpack_from(f"<{count}{code}", padded, at)
        assert tuple(int(x) for x in held.read(at, width, count)) == wanted


ACCESS = Snippet(
    {
        "start": "mov.u32 %r2, a; setp.ne.u32 %p1, %r1, 33; mov.u32 %r4, 0; mov.b32 %r5, 1; cvt.u64.u32 %rd5, %r2; cvta.shared.u64 %rd6, %rd5;",
        "fill": "mov.u32 %r6, 0; st.shared.v4.b32 [%r2], {%r6, %r6, %r6, %r6}; bar.sync 0;",
        "access": "",
        "end": "",
    },
    words=(16,),
    shared=".shared .align 16 .b8 a[64];",
)


@pytest.mark.parametrize(
    ("access", "kind", "said"),
    [
        ("ld.shared.b32 %r4, [%r2+2];", "misaligned", "shared read of 4 bytes at 0x402"),
        ("ld.shared.b16 %h1, [%r2+1];", "misaligned", "shared read of 2 bytes at 0x401"),
        ("ld.shared.v2.b32 {%r4, %r5}, [%r2+4];", "misaligned", "shared read of 8 bytes at 0x404"),
        ("st.shared.b64 [%r2+12], %rd0;", "misaligned", "shared write of 8 bytes at 0x40c"),
        ("atom.shared.add.u32 %r4, [%r2+3], %r5;", "misaligned", "shared atomic of 4 bytes at 0x403"),
        ("ld.shared.b32 %r4, [%r2+64];", "out-of-bounds", "shared read of 4 bytes at 0x440, and shared memory spans 0x400 to 0x440"),
        ("ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r2+56];", "out-of-bounds", "shared read of 16 bytes at 0x438"),
        ("st.shared.b16 [%r2+64], %h1;", "out-of-bounds", "shared write of 2 bytes at 0x440"),
        ("ld.global.b32 %r4, [%rd0+2];", "misaligned", "global read of 4 bytes at"),
        ("st.global.v2.b32 [%rd0+4], {%r4, %r5};", "misaligned", "global write of 8 bytes at"),
        ("red.global.add.u32 [%rd0+1], %r5;", "misaligned", "global atomic of 4 bytes at"),
        ("ld.b32 %r4, [%rd6+6];", "misaligned", "shared read of 4 bytes at 0x406"),
    ],
)  # fmt: skip
def test_a_bad_address_is_said_with_its_thread(access: str, kind: str, said: str) -> None:
    _, done = ACCESS.run({"access": f"@!%p1 {access}"})
    found = [d for d in done.diagnostics if d.kind == kind]
    assert [d.at.line for d in found] == [ACCESS.line("access")]
    assert said in found[0].message
    assert "thread 33 (warp 1, lane 1)" in str(found[0])


@pytest.mark.parametrize(
    "access",
    [
        "ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r2];", "ld.shared.b8 %r4, [%r2+15];",
        "ld.shared.b64 %rd7, [%r2+8];", "st.shared.b16 [%r2+62], %h1;",
        "st.shared.v4.b32 [%r2+48], {%r5, %r5, %r5, %r5};", "ld.global.b16 %h1, [%rd0+2];",
        "ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd0+48];",
    ],
)  # fmt: skip
def test_a_good_address_is_not_spoken_of(access: str) -> None:
    _, done = ACCESS.run({"access": f"@!%p1 {access}"}, Options(seed=1))
    assert done.diagnostics == []


def test_what_lies_past_the_end_of_all_shared_memory_is_left_alone() -> None:
    shared = ".shared .align 16 .b8 a[1024];"
    for access in (
        "ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r2+1024];",
        "st.shared.b64 [%r2+60000], %rd0;",
    ):
        kernel = Snippet({**ACCESS.steps, "access": access}, words=(16,), shared=shared)
        _, done = kernel.run()
        assert [d.kind for d in done.diagnostics] == ["out-of-bounds"]


@pytest.mark.parametrize("seed", [None, 1])
def test_a_loop_without_end_is_named_with_its_line(seed: int | None) -> None:
    steps = {
        **ACCESS.steps,
        "access": "L: add.u32 %r4, %r4, 1; setp.ne.u32 %p2, %r1, 99; @%p2 bra L;",
    }
    with pytest.raises(
        EmulatorError, match=r"CTA \(0, 0, 0\) has run \d+ segments without an end"
    ) as told:
        Snippet(steps, words=(16,)).run(options=Options(seed=seed, max_steps=500))
    assert "kernel.py:3" in str(told.value)


@pytest.mark.parametrize(("offsets", "first"), [((1, 2), 5), ((2, 1), 5), ((0, 3), 9)])
def test_the_first_thread_that_is_off_is_named(offsets: tuple[int, int], first: int) -> None:
    five, nine = offsets
    where = (
        f"setp.eq.u32 %p2, %r1, 5; setp.eq.u32 %p3, %r1, 9; mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd0, %rd3; @%p2 add.u64 %rd4, %rd4, {five}; @%p3 add.u64 %rd4, %rd4, {nine};"
        f"cvt.u32.u64 %r8, %rd3; add.u32 %r8, %r8, %r2; @%p2 add.u32 %r8, %r8, {five}; @%p3 add.u32 %r8, %r8, {nine};"
    )
    for access in ("ld.global.b32 %r4, [%rd4];", "st.shared.b32 [%r8], %r1;"):
        kernel = Snippet(
            {**ACCESS.steps, "access": f"{where} {access}"},
            words=(65,),
            shared=".shared .align 16 .b8 a[512];",
        )
        _, done = kernel.run()
        (found,) = (d for d in done.diagnostics if d.kind == "misaligned")
        assert f"thread {first} (warp 0, lane {first})" in str(found)
