# ruff: noqa: E501  # A PTX statement stays on its line.
"""What lanes exchange, against the ISA's own words lane by lane: whole warps and parts of one."""

from __future__ import annotations

import functools
import operator

import numpy as np
import pytest

from mla_var3.emulator import launch
from mla_var3.emulator.options import Options
from tests.emulator.events import Snippet
from tests.emulator.machines import machine
from tests.emulator.snippets import evaluate

RANDOM = np.random.default_rng(20)
THREADS = 64
#: How many lanes of a warp take part.
PARTS = (32, 20)
WORDS = RANDOM.integers(0, 2**32, THREADS, np.uint32)


def among(lanes: int, body: str) -> str:
    """A body that the first lanes of each warp run; ``%r15`` is their mask."""
    if lanes == 32:
        return f"mov.u32 %r15, -1; {body}"
    return (
        f"mov.b64 %o, 0; mov.u32 %r15, {(1 << lanes) - 1}; mov.u32 %r14, %laneid; "
        f"setp.ge.u32 %p7, %r14, {lanes}; @%p7 bra END;\n{body}\nEND:\n"
    )


def warps(values: np.ndarray, lanes: int) -> list[list[int]]:
    return [w[:lanes].tolist() for w in values.reshape(-1, 32)]


def source(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """The lane that ``shfl`` reads, and whether it is in range (PTX ISA, "shfl.sync")."""
    b, clamp, segment = b & 31, c & 31, c >> 8 & 31
    last, first = (lane & segment) | (clamp & ~segment & 31), lane & segment
    j, ok = {
        "up": (lane - b, lane - b >= last), "down": (lane + b, lane + b <= last),
        "bfly": (lane ^ b, (lane ^ b) <= last),
        "idx": (first | (b & ~segment & 31), (first | (b & ~segment & 31)) <= last),
    }[mode]  # fmt: skip
    return (j, True) if ok else (lane, False)


@pytest.mark.parametrize("lanes", PARTS)
@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles(mode: str, lanes: int) -> None:
    b = RANDOM.integers(0, 64, THREADS, np.uint32)
    segments = RANDOM.choice([0, 16, 24, 28, 30, 31], THREADS).astype(np.uint32)
    clamp = np.full(THREADS, 0 if mode == "up" else 31, np.uint32)
    clamp[::3] = RANDOM.integers(0, 32, len(clamp[::3]))
    c = segments << np.uint32(8) | clamp
    out = evaluate(
        among(lanes, f"shfl.sync.{mode}.b32 %r0|%p0, %i0, %i1, %i2, %r15; "
              "selp.u32 %r1, 1, 0, %p0; mov.b64 %o, {%r0, %r1};"),
        [WORDS, b, c], np.uint64,
    )  # fmt: skip
    checked = 0
    for thread in range(THREADS):
        lane = thread % 32
        if lane >= lanes:
            continue
        j, ok = source(mode, lane, int(b[thread]), int(c[thread]))
        assert int(out[thread]) >> 32 == ok
        if j < lanes:  # What another lane holds is undefined.
            checked += 1
            assert int(out[thread]) & 0xFFFFFFFF == WORDS[thread - lane + j]
    assert checked > THREADS // 3


@pytest.mark.parametrize("lanes", PARTS)
@pytest.mark.parametrize("bits", [0, 0xFFFFFFFF, 0xFFFFF, 0x80001, 0x12345, 0xFFF00000])
def test_votes(lanes: int, bits: int) -> None:
    tests = np.array([bits >> lane & 1 for lane in range(32)] * 2, np.uint32)
    tests[32:] = 1 - tests[32:]
    out = evaluate(
        among(lanes, "setp.ne.u32 %p0, %i0, 0; vote.sync.any.pred %p1, %p0, %r15; "
              "vote.sync.all.pred %p2, %p0, %r15; vote.sync.uni.pred %p3, %p0, %r15; "
              "vote.sync.ballot.b32 %r0, %p0, %r15; vote.sync.any.pred %p4, !%p0, %r15; "
              "activemask.b32 %r5; "
              "selp.u32 %r1, 1, 0, %p1; selp.u32 %r2, 2, 0, %p2; selp.u32 %r3, 4, 0, %p3; "
              "selp.u32 %r4, 8, 0, %p4; or.b32 %r1, %r1, %r2; or.b32 %r1, %r1, %r3; "
              "or.b32 %r1, %r1, %r4; shl.b32 %r5, %r5, 4; or.b32 %r1, %r1, %r5; "
              "mov.b64 %o, {%r0, %r1};"),
        [tests], np.uint64,
    )  # fmt: skip
    for warp, mine in enumerate(warps(tests, lanes)):
        ballot = sum(bit << lane for lane, bit in enumerate(mine))
        said = any(mine) | all(mine) << 1 | (len(set(mine)) == 1) << 2 | (not all(mine)) << 3
        said |= ((1 << lanes) - 1 << 4) & 0xFFFFFFFF
        got = out[32 * warp : 32 * warp + lanes].tolist()
        assert got == [said << 32 | ballot] * lanes


SIGNED = WORDS.view(np.int32)


@pytest.mark.parametrize("lanes", PARTS)
@pytest.mark.parametrize(
    ("op", "kind", "fold"),
    [
        ("add", "u32", operator.add), ("add", "s32", operator.add), ("min", "u32", min),
        ("max", "u32", max), ("min", "s32", min), ("max", "s32", max),
        ("and", "b32", operator.and_), ("or", "b32", operator.or_), ("xor", "b32", operator.xor),
    ],
)  # fmt: skip
@pytest.mark.parametrize("few", [False, True])
def test_reductions(op: str, kind: str, fold, lanes: int, few: bool) -> None:
    values = WORDS.copy()
    if few:  # Neutral elements must not win: large numbers for min, small ones for max.
        values = np.where(values & 1, np.uint32(0xFFFFFF00), np.uint32(0x80000003)) | values >> 29
    elif op == "and":
        values |= np.uint32(0x0F0F0F00)
    out = evaluate(
        among(lanes, f"redux.sync.{op}.{kind} %r0, %i0, %r15; cvt.u64.u32 %o, %r0;"),
        [values], np.uint64,
    )  # fmt: skip
    seen = values.view(np.int32) if kind == "s32" else values
    for warp, mine in enumerate(warps(seen, lanes)):
        wanted = functools.reduce(fold, mine) & 0xFFFFFFFF
        assert out[32 * warp : 32 * warp + lanes].tolist() == [wanted] * lanes


@pytest.mark.parametrize("lanes", PARTS)
@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("absolute", ["", ".abs"])
@pytest.mark.parametrize("nan", ["", ".NaN"])
def test_reductions_of_floats(op: str, absolute: str, nan: str, lanes: int) -> None:
    x = RANDOM.standard_normal(THREADS).astype(np.float32)
    x[3] = x[31] = np.nan  # In one warp; the second has none.
    out = evaluate(
        among(lanes, f"redux.sync.{op}{absolute}{nan}.f32 %r0, %i0, %r15; cvt.u64.u32 %o, %r0;"),
        [x], np.uint64,
    ).astype(np.uint32).view(np.float32)  # fmt: skip
    seen = np.abs(x) if absolute else x
    for warp, mine in enumerate(warps(seen, lanes)):
        wanted = (np.nanmin if op == "min" else np.nanmax)(mine)
        if nan and np.isnan(mine).any():
            wanted = np.float32(np.nan)
        np.testing.assert_array_equal(out[32 * warp : 32 * warp + lanes], np.float32(wanted))


@pytest.mark.parametrize("lanes", PARTS)
@pytest.mark.parametrize("width", [32, 64])
def test_matches(lanes: int, width: int) -> None:
    kind = np.uint32 if width == 32 else np.uint64
    values = RANDOM.integers(0, 4, THREADS).astype(kind) << kind(width - 3)
    values[32:] = 7
    out = evaluate(
        among(lanes, f"match.any.sync.b{width} %r0, %i0, %r15; match.all.sync.b{width} %r1|%p0, %i0, %r15; "
              "selp.u32 %r2, 1, 0, %p0; xor.b32 %r1, %r1, %r2; mov.b64 %o, {%r0, %r1};"),
        [values], np.uint64,
    )  # fmt: skip
    for warp, mine in enumerate(warps(values, lanes)):
        for lane, value in enumerate(mine):
            same = sum(1 << j for j, other in enumerate(mine) if other == value)
            every = (1 << lanes) - 1 ^ 1 if len(set(mine)) == 1 else 0
            assert int(out[32 * warp + lane]) == every << 32 | same


@pytest.mark.parametrize("lanes", PARTS)
def test_one_lane_is_elected(lanes: int) -> None:
    body = (
        "elect.sync %r0|%p0, %r15; selp.u32 %r1, 1, 0, %p0; elect.sync _|%p1, %r15; "
        "selp.u32 %r2, 2, 0, %p1; or.b32 %r1, %r1, %r2; mov.b64 %o, {%r0, %r1};"
    )
    out = evaluate(among(lanes, body), [WORDS], np.uint64)
    for warp in out.reshape(-1, 32):
        assert warp[:lanes].tolist() == [3 << 32, *[0] * (lanes - 1)]


# Matrices ------------------------------------------------------------------------------------------


def matrices(body: str, given: np.ndarray) -> np.ndarray:
    """Run a warp on 1 KiB of shared memory: filled from ``given``, copied out at the end."""
    out = np.zeros(512, np.uint16)
    text = (
        ".version 8.8\n.target sm_90a\n.address_size 64\n"
        ".visible .entry m(.param .u64 a, .param .u64 o)\n{\n"
        ".reg .b32 %r<40>; .reg .b64 %d<8>; .shared .align 128 .b8 s[1024];\n"
        "ld.param.u64 %d0, [a]; ld.param.u64 %d1, [o]; mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 5; "
        "cvt.u64.u32 %d2, %r1; add.u64 %d0, %d0, %d2; add.u64 %d1, %d1, %d2; mov.u32 %r2, s; "
        "add.u32 %r3, %r2, %r1;\n"
        + "".join(
            f"ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%d0+{at}]; "
            f"st.shared.v4.b32 [%r3+{at}], {{%r4, %r5, %r6, %r7}};\n"
            for at in (0, 16)
        )
        + f"bar.warp.sync -1;\n{body}\nbar.warp.sync -1;\n"
        + "".join(
            f"ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%r3+{at}]; "
            f"st.global.v4.b32 [%d1+{at}], {{%r4, %r5, %r6, %r7}};\n"
            for at in (0, 16)
        )
        + "ret;\n}\n"
    )
    done = launch(text, [given, out], 1, 32, options=Options())
    assert not done.diagnostics, done.diagnostics[0]
    return out


HALVES = RANDOM.integers(0, 2**16, 512).astype(np.uint16)
#: Lane i names row ``i % 8`` of matrix ``i / 8``; rows lie in an order of their own.
ROWS = "mul.lo.u32 %r9, %r0, 5; and.b32 %r9, %r9, 31; shl.b32 %r9, %r9, 4; add.u32 %r9, %r9, %r2;"


def rows(count: int) -> np.ndarray:
    """Where the halves of each matrix lie."""
    at = np.array([5 * lane % 32 * 8 for lane in range(8 * count)]).reshape(count, 8, 1)
    return at + np.arange(8)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_matrices_are_loaded(count: int, trans: str) -> None:
    names = [f"%r{20 + i}" for i in range(count)]
    body = (
        f"{ROWS} ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{', '.join(names)}}}, [%r9];\n"
        "bar.warp.sync -1; shl.b32 %r10, %r0, 2; add.u32 %r10, %r10, %r2;\n"
        + "".join(f"st.shared.b32 [%r10+{128 * i}], {name};\n" for i, name in enumerate(names))
    )
    wanted = HALVES.copy()
    for i, matrix in enumerate(HALVES[rows(count)]):
        wanted[64 * i : 64 * i + 64] = (matrix.T if trans else matrix).ravel()
    assert matrices(body, HALVES).tolist() == wanted.tolist()


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_matrices_are_stored(count: int, trans: str) -> None:
    names = [f"%r{20 + i}" for i in range(count)]
    body = (
        "shl.b32 %r10, %r0, 2; add.u32 %r10, %r10, %r2;\n"
        + "".join(f"ld.shared.b32 {name}, [%r10+{128 * i}];\n" for i, name in enumerate(names))
        + f"bar.warp.sync -1; {ROWS}\n"
        f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%r9], {{{', '.join(names)}}};"
    )
    wanted = HALVES.copy()
    for i, at in enumerate(rows(count)):
        matrix = HALVES[64 * i : 64 * i + 64].reshape(8, 8)
        wanted[at] = matrix.T if trans else matrix
    assert matrices(body, HALVES).tolist() == wanted.tolist()


@pytest.mark.parametrize("count", [1, 2])
def test_matrices_of_bytes_are_loaded_by_columns(count: int) -> None:
    """As ``trans`` of 16 bits, four rows per register; CUTLASS's mixed-input decode is right so."""
    names = [f"%r{20 + i}" for i in range(2 * count)]
    body = (
        f"{ROWS} ldmatrix.sync.aligned.m16n16.x{count}.trans.shared.b8 {{{', '.join(names)}}}, [%r9];\n"
        "bar.warp.sync -1; shl.b32 %r10, %r0, 2; add.u32 %r10, %r10, %r2;\n"
        + "".join(f"st.shared.b32 [%r10+{128 * i}], {name};\n" for i, name in enumerate(names))
    )
    given, wanted = HALVES.view(np.uint8), HALVES.view(np.uint8).copy()
    at = rows(2 * count)[..., 0].reshape(count, 16) * 2  # bytes of the first of each row
    for i in range(2 * count):
        for lane in range(32):
            for byte in range(4):
                row, column = 4 * (lane % 4) + byte, lane // 4 + 8 * (i % 2)
                wanted[128 * i + 4 * lane + byte] = given[at[i // 2, row] + column]
    assert matrices(body, HALVES).tolist() == wanted.view(np.uint16).tolist()


@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrices_of_bytes_are_stored_by_columns(count: int) -> None:
    """PTX ISA, stmatrix: bytes 0 and 1 of lane l are row l / 4, columns 2 (l % 4) and its next."""
    names = [f"%r{20 + i}" for i in range(count)]
    body = (
        "shl.b32 %r10, %r0, 2; add.u32 %r10, %r10, %r2;\n"
        + "".join(f"ld.shared.b32 {name}, [%r10+{128 * i}];\n" for i, name in enumerate(names))
        + f"bar.warp.sync -1; {ROWS}\n"
        f"stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8 [%r9], {{{', '.join(names)}}};"
    )
    given, wanted = HALVES.view(np.uint8), HALVES.view(np.uint8).copy()
    for i, at in enumerate(rows(count)[..., 0] * 2):  # bytes of the first of each row
        for lane in range(32):
            for byte in range(4):
                row, column = lane // 4 + 8 * (byte // 2), 2 * (lane % 4) + byte % 2
                wanted[at[column] + row] = given[128 * i + 4 * lane + byte]
    assert matrices(body, HALVES).tolist() == wanted.view(np.uint16).tolist()


def test_a_matrix_is_transposed_among_lanes() -> None:
    out = evaluate("movmatrix.sync.aligned.m8n8.trans.b16 %o, %i0;", [WORDS], np.uint32)
    for given, got in zip(WORDS.reshape(-1, 32), out.reshape(-1, 32), strict=True):
        wanted = given.view(np.uint16).reshape(8, 8).T.ravel()
        assert got.view(np.uint16).tolist() == wanted.tolist()


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("block", [128, 112])
def test_warps_apart_exchange_by_themselves(block: int, seed: int | None) -> None:
    """Warps 0 and 2 go one way, 1 and 3 another; each shuffles within itself."""
    kernel = Snippet(
        {
            "ways": "shr.u32 %r2, %r1, 5; and.b32 %r2, %r2, 1; setp.ne.u32 %p1, %r2, 0; @%p1 bra ODD;",
            "even": "shfl.sync.down.b32 %r3, %r1, 1, 31, -1; bra END;",
            "odd": "ODD: shfl.sync.up.b32 %r3, %r1, 1, 0, -1;",
            "end": "END: mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd0, %rd3; st.global.u32 [%rd4], %r3;",
        },
        words=(128,),
        block=block,
    )
    (out,), done = kernel.run(options=Options(seed=seed))
    assert done.diagnostics == []
    for t in range(block if block % 32 == 0 else 96):
        lane, odd = t % 32, t // 32 % 2
        wanted = t - 1 if odd and lane else t + 1 if not odd and lane < 31 else t
        assert out[t] == wanted, t


@pytest.mark.parametrize("op", ["and.b32", "or.b32", "xor.b32", "add.u32", "min.u32", "max.s32"])
def test_lanes_that_take_no_part_do_not_count(op: str) -> None:
    kernel = Snippet(
        {
            "value": "mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd0, %rd3; ld.global.u32 %r2, [%rd4]; shl.b32 %r2, %r2, 1; or.b32 %r2, %r2, 0x70000000;",
            "part": "setp.ge.u32 %p1, %r1, 20; @%p1 bra END;",
            "reduce": f"redux.sync.{op} %r3, %r2, 0x000fffff; st.global.u32 [%rd4], %r3;",
            "end": "END:",
        },
        words=(32,),
        block=32,
    )
    (out,), done = kernel.run()
    assert done.diagnostics == []
    fold = {
        "and": operator.and_,
        "or": operator.or_,
        "xor": operator.xor,
        "add": operator.add,
        "min": min,
        "max": max,
    }[op[:3].rstrip(".")]
    wanted = functools.reduce(fold, [2 * t | 0x70000000 for t in range(20)]) % 2**32
    assert out[:20].tolist() == [wanted] * 20
    assert out[20:].tolist() == list(range(20, 32))


@pytest.mark.parametrize(("row", "hits"), [(0, False), (16, True), (24, True), (32, False)])
def test_a_row_of_a_matrix_may_end_where_a_barrier_begins(row: int, hits: bool) -> None:
    kernel = Snippet(
        {
            "init": "mov.u32 %r2, a; setp.ne.u32 %p1, %r1, 0; @!%p1 mbarrier.init.shared.b64 [%r2+24], 1; bar.sync 0;",
            "where": f"mad.lo.u32 %r4, %r1, 64, %r2; setp.eq.u32 %p2, %r1, 1; mov.u32 %r5, %r2; add.u32 %r5, %r5, {row // 16 * 16}; selp.b32 %r4, %r5, %r4, %p2; add.u32 %r4, %r4, 0; @!%p1 add.u32 %r4, %r2, 2048;",
            "store": "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r4], {%r1};",
        },
        words=(1,),
        shared=".shared .align 128 .b8 a[4096];",
        block=32,
    )
    _, done = kernel.run()
    assert ["is overwritten while in use" in d.message for d in done.diagnostics] == [True] * hits
    if hits:
        assert "lane 1" in done.diagnostics[0].who


def test_whole_warps_need_no_places_of_their_own() -> None:
    """The usual case, which has to be fast: nothing is looked up."""
    m = machine((96, 1, 1))
    warps = m.units["warps"]
    for s, whole in (
        (slice(0, 96), True),
        (slice(32, 64), True),
        (slice(0, 40), False),
        (np.r_[0:32, 64:96], True),
    ):
        values, how = warps._spread(np.arange(len(m.ids[s])), s)
        assert (how is None) is whole
        assert values.shape[1] == 32
        assert warps._back(values, how).tolist() == list(range(len(m.ids[s])))


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("mask", [0xFFFFFFF0, 0x80000001, 0x00F0A508, 0x80000000, 0x7FFFFFFE])
def test_any_lanes_of_a_warp_may_take_part(mask: int, seed: int | None) -> None:
    """Those that a kernel leaves out may be the first, the last, or some between."""
    values = (WORDS >> np.uint32(29)) | np.uint32(8)
    body = (
        f"mov.u32 %r15, {mask:#x}; mov.u32 %r14, %laneid; shr.u32 %r13, %r15, %r14; and.b32 %r13, %r13, 1; "
        "mov.b32 %o, 0; setp.eq.u32 %p7, %r13, 0; @%p7 bra END;\n"
        "setp.gt.u32 %p0, %i0, 11; elect.sync %r0|%p1, %r15; selp.u32 %r1, 1, 0, %p1; mad.lo.u32 %r0, %r0, 2, %r1; "
        "vote.sync.ballot.b32 %r2, %p0, %r15; vote.sync.all.pred %p2, %p0, %r15; selp.u32 %r3, 1, 0, %p2; "
        "vote.sync.uni.pred %p3, %p0, %r15; selp.u32 %r4, 1, 0, %p3; activemask.b32 %r5; "
        "match.any.sync.b32 %r6, %i0, %r15; match.all.sync.b32 %r7|%p4, %i0, %r15; redux.sync.add.u32 %r8, %i0, %r15; "
        "redux.sync.and.b32 %r9, %i0, %r15; redux.sync.max.s32 %r10, %i0, %r15; shfl.sync.idx.b32 %r11|%p5, %i0, 31, 31, %r15;\n"
        + " ".join(f"mad.lo.u32 %o, %o, 31, %r{i};" for i in range(11))
        + "\nEND:\n"
    )
    out = evaluate(body, [values], np.uint32, Options(seed=seed))
    lanes = [lane for lane in range(32) if mask >> lane & 1]
    for warp in range(2):
        mine = {lane: int(values[32 * warp + lane]) for lane in lanes}
        tests = [mine[lane] > 11 for lane in lanes]
        for lane in range(32):
            if lane not in lanes:
                assert out[32 * warp + lane] == 0
                continue
            said = [
                2 * lanes[0] + (lane == lanes[0]), int(lane == lanes[0]),
                sum(1 << j for j in lanes if mine[j] > 11), int(all(tests)),
                int(len(set(tests)) == 1), mask,
                sum(1 << j for j in lanes if mine[j] == mine[lane]),
                mask if len(set(mine.values())) == 1 else 0, sum(mine.values()),
                functools.reduce(operator.and_, mine.values()), max(mine.values()),
            ]  # fmt: skip
            wanted = functools.reduce(lambda total, x: (31 * total + x) % 2**32, said, 0)
            assert out[32 * warp + lane] == wanted, (warp, lane)
