# ruff: noqa: E501  # A PTX statement stays on its line.
"""Stops at a line: who is there, barriers with their state, tiles as their layout says."""

import re

import numpy as np
import pytest
import torch

from mla_var3.emulator.options import Options
from mla_var3.emulator.stops import Stop, Tile, stop
from mla_var3.errors import EmulatorError
from tests.emulator.events import Snippet
from tests.emulator.kernels import FILE, GEMM, MIRROR, RING


def printed(kernel, mark: str, *tiles: Tile, times: int = 4) -> list[str]:
    """What a kernel's run prints at a mark."""
    wanted = Stop(FILE, kernel.line(mark), times, tiles)
    right, done = kernel.run(options=Options(stop=wanted))
    assert right, "a stop changes nothing"
    assert not done.diagnostics
    return done.printed


def test_a_stop_comes_before_the_line_has_run():
    tile = Tile(0x400, "f32", 1, 128)
    texts = printed(MIRROR, "fill", tile)
    assert len(texts) == 3, "a stop per pass"
    assert f"stop at {FILE}:{MIRROR.line('fill')} by warp 0 and 3 more" in texts[0]
    assert "128 of 128 elements were never written" in texts[0]
    after = printed(MIRROR, "take", tile)[0]
    assert "never written" not in after
    row = MIRROR.case().arguments[0][0]
    assert f"{row[1]:.4f}".rstrip("0") in after.replace("\n", " ")


def test_no_more_stops_than_asked_for():
    assert len(printed(MIRROR, "take", times=2)) == 2


def test_barriers_and_those_that_wait_elsewhere_are_named():
    text = printed(RING, "take")[0]
    assert text.count("mbarrier 0x") == 4
    assert f"of {FILE}:{RING.line('init_full0')}: phase 1, which lacks its only arrival" in text
    assert f"warp 4 at {FILE}:" in text


def test_a_swizzled_tile_is_shown_as_its_layout_says():
    tile = Tile(0x400, "f16", 64, 64, "sw128")
    text = printed(GEMM, "fence", tile)[0]
    a = GEMM.case()
    source = np.random.default_rng(0).standard_normal((64, 256)).astype("f2")
    assert a.expected.shape == (64, 64)
    shown = text.split("tile 0x400")[1].split("[[")[1].split()[:3]
    assert np.allclose([float(x) for x in shown], source[0, :3].astype(float), rtol=1e-3)


def test_a_tile_outside_says_so():
    text = printed(MIRROR, "take", Tile(0x400, "f32", 64, 64))[0]
    assert "not inside of shared memory (0x400 to 0x600)" in text


def test_a_line_without_instructions_is_one_sentence():
    with pytest.raises(EmulatorError, match=r"no instruction of kernel.py:999 \(its lines: 1, 2"):
        MIRROR.run(options=Options(stop=Stop(FILE, 999)))


@pytest.mark.parametrize("text", ["ring.py", ":3", "ring.py:x"])
def test_a_stop_is_a_file_and_a_line(text: str):
    with pytest.raises(EmulatorError, match="not a line such as"):
        stop(text)


@pytest.mark.parametrize("text", ["0x400:f12:2x2", "f32:2x2", "0x400:f32:2", "0x400:f32:2x2:sw5"])
def test_a_tile_is_address_kind_and_extents(text: str):
    with pytest.raises(EmulatorError, match="not a tile such as"):
        stop("a.py:1", (text,))


def test_a_stop_from_text():
    wanted = stop("a/ring.py:49", ("1024:bf16:2x64:sw64",))
    assert wanted == Stop("a/ring.py", 49, tiles=(Tile(1024, "bf16", 2, 64, "sw64"),))


WAITING = Snippet(
    {
        "start": "setp.ge.u32 %p1, %r1, 64; setp.ge.u32 %p2, %r1, 32;",
        "where": "mov.u32 %r2, a; shl.b32 %r3, %r1, 2; add.u32 %r3, %r3, %r2; mov.u32 %r9, %cluster_ctarank; mad.lo.u32 %r4, %r9, 1000, %r1;",
        "fill": "st.shared.u32 [%r3], %r4;",
        "sync": "@!%p2 bar.sync 3, 64; @%p1 bar.sync 5;",
        "away": "setp.eq.u32 %p3, %r9, 0; @%p3 bra LATE;",
        "here": "mov.u32 %r5, 1;",
        "late": "LATE: @%p1 bra END; @%p2 bar.sync 3, 64;",
        "end": "END: bar.sync 5;",
    },
    words=(1,),
    block=96,
    grid=2,
    cluster=2,
)  # fmt: skip


@pytest.mark.parametrize("number", [0, 3, 15])
def test_named_barriers_are_listed_with_who_is_there(number: int):
    edits = {
        name: WAITING.steps[name].replace("bar.sync 3,", f"bar.sync {number},")
        for name in ("sync", "late")
    }
    _, done = WAITING.run(edits, options=Options(stop=Stop("kernel.py", WAITING.line("here"), 40)))
    lines = {line.strip() for text in done.printed for line in text.splitlines()}
    named = {line for line in lines if line.startswith("named barrier")}
    for cta in (0, 1):
        assert f"named barrier {number} of CTA {cta}: 32 of 64 threads there" in named
        assert f"named barrier 5 of CTA {cta}: 32 of all threads there" in named


def test_a_tile_is_that_of_the_cta_which_stops():
    wanted = Stop("kernel.py", WAITING.line("here"), 40, (Tile(0x400, "u32", 1, 32),))
    _, done = WAITING.run(options=Options(stop=wanted))
    first = {text.split("[[")[1].split()[1].strip("]") for text in done.printed}
    assert first == {"1001"}
    said = "\n".join(done.printed)
    assert "of CTA 1 of the cluster" in said


@pytest.mark.parametrize(("swizzle", "bits"), [(None, 0), ("sw32", 1), ("sw64", 2), ("sw128", 3)])
def test_each_swizzle_flips_as_many_bits_as_it_has(swizzle: str | None, bits: int):
    tile = Tile(0x400, "u32", 3, 32, swizzle)
    _, done = WAITING.run(options=Options(stop=Stop("kernel.py", WAITING.line("here"), 1, (tile,))))
    shown = [int(x) for x in re.findall(r"\b1\d\d\d\b", done.printed[0].split("tile 0x400")[1])]
    wanted = []
    for at in range(0x400, 0x400 + 384, 4):
        flipped = at
        for bit in range(bits):
            flipped ^= (at >> (7 + bit) & 1) << (4 + bit)
        wanted.append(1000 + (flipped - 0x400) // 4)
    assert shown == wanted


BARRIERS = Snippet(
    {
        "start": "mov.u32 %r3, bars; setp.ne.u32 %p1, %r1, 0; @%p1 bra MET; mbarrier.init.shared.b64 [%r3], 3;",
        "meet": "MET: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
        "arrive": "@!%p1 mbarrier.arrive.shared.b64 _, [%r3];",
        "last": "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
        "here": "mov.u32 %r5, 1;",
    },
    words=(1,),
    block=32,
    grid=4,
    cluster=2,
)  # fmt: skip


def test_mbarriers_are_those_of_each_cta():
    _, done = BARRIERS.run(options=Options(stop=Stop("kernel.py", BARRIERS.line("here"), 1)))
    assert len(done.printed) == 2, "one per cluster"
    for index, text in zip(("(0, 0, 0)", "(2, 0, 0)"), done.printed, strict=True):
        lines = [line.strip() for line in text.splitlines()]
        place = int(lines[-2].split()[1], 16)
        state = f"of kernel.py:{BARRIERS.line('start')}: phase 0, which lacks 2 of its 3 arrivals"
        assert lines[-2:] == [
            f"mbarrier {place:#x} of CTA {cta} of the cluster {state}" for cta in (0, 1)
        ]
        assert lines[0].startswith(f"stop at kernel.py:{BARRIERS.line('here')} by warp 0")
        assert lines[0].endswith(f"CTA {index}")


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "e4m3", "e5m2", "s32", "u32", "s8", "u8"])
def test_elements_are_shown_as_their_kind_says(kind: str):
    """Of the words 1000, 1001, ... that stand there, the first eight elements of each kind."""
    tile = Tile(0x400, kind, 1, 8)
    _, done = WAITING.run(options=Options(stop=Stop("kernel.py", WAITING.line("here"), 1, (tile,))))
    given = torch.arange(1000, 1008, dtype=torch.int32)
    as_torch = {
        "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "s32": torch.int32,
        "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "u32": torch.int32,
        "s8": torch.int8, "u8": torch.uint8,
    }[kind]  # fmt: skip
    wanted = given.view(as_torch)[:8].double().numpy()
    text = done.printed[0].partition("[[")[2].partition("]]")[0]
    shown = np.array([float(x) for x in text.split()])
    assert len(shown) == 8
    assert np.allclose(shown, wanted, rtol=1e-3, atol=1e-50)
