# ruff: noqa: E501  # A PTX statement stays on its line.
"""Copies of bytes in a row, reductions of them, stores between CTAs, and maps that are changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.emulator import launch
from mla_var3.emulator.formats import from_bf16, to_bf16
from mla_var3.emulator.options import DEFAULT, STRICT, Model, Options
from mla_var3.emulator.units.bulk import Bulk
from mla_var3.emulator.units.tensormap import TensorMap, replaced, tiled
from tests.emulator.test_atomics import applied

RANDOM = np.random.default_rng(9)
BYTES = 512
HEAD = f"""
.version 8.8\n.target sm_90a\n.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y, .param .u64 z)
{{
.reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %d<20>; .reg .b16 %h<9>;
.shared .align 128 .b8 s[{2 * BYTES}]; .shared .align 8 .b8 bar[8];
ld.param.u64 %d0, [x]; ld.param.u64 %d1, [y]; ld.param.u64 %d2, [z]; mov.u32 %r0, %tid.x; mov.u32 %r1, s; mov.u32 %r2, bar;
mul.wide.u32 %d3, %r0, 16; shl.b32 %r3, %r0, 4; add.u32 %r3, %r3, %r1; setp.ne.u32 %p0, %r0, 0;
mov.u32 %r9, %cluster_ctarank;
"""
TAIL = "\nret;\n}\n"
#: Every thread brings 16 bytes of y; thread 0 makes a barrier.
FILL = (
    "add.u64 %d4, %d1, %d3; ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%d4]; st.shared.v4.b32 [%r3], {%r4, %r5, %r6, %r7};\n"
    "@%p0 bra MADE; mbarrier.init.shared.b64 [%r2], 1; fence.mbarrier_init.release.cluster; MADE:\n"
    "fence.proxy.async.shared::cta; bar.sync 0;\n"
)
TAKE = "add.u64 %d4, %d2, %d3; ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r3]; st.global.v4.b32 [%d4], {%r4, %r5, %r6, %r7};\n"
DONE = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\n"


def wait(parity: str = "0") -> str:
    return f"WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [%r2], {parity};\n@!%p1 bra WAIT;\n"


def run(
    body: str, x: np.ndarray, y: np.ndarray, z: np.ndarray, ctas: int = 1, model: Model = DEFAULT
) -> list[str]:
    """Run 32 threads per CTA; the kinds of what is reported."""
    options = Options(model=model)
    done = launch(HEAD + body + TAIL, [x, y, z], ctas, 32, cluster=ctas, options=options)
    return [d.kind for d in done.diagnostics]


def noise(count: int = BYTES) -> np.ndarray:
    return RANDOM.integers(0, 256, count, np.uint8)


@pytest.mark.parametrize("count", [16, 48, BYTES])
def test_bytes_come_and_go(count: int) -> None:
    x, y, z = noise(), noise(), np.zeros(BYTES, np.uint8)
    body = FILL + (
        "@%p0 bra HERE;\n"
        f"cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r1], {count};\n{DONE}"
        f"mbarrier.arrive.expect_tx.shared.b64 _, [%r2], {count};\n"
        "add.u64 %d5, %d1, 0;\n"
        f"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+{BYTES - count}], [%d1], {count}, [%r2];\n"
        "HERE:\n" + wait() + TAKE
    )
    old, given = x.copy(), y.copy()
    assert run(body, x, y, z) == []
    assert x.tolist() == [*given[:count].tolist(), *old[count:].tolist()]
    wanted = given.copy()
    wanted[BYTES - count :] = given[:count]
    assert z.tolist() == wanted.tolist()


REDUCTIONS = [
    *((op, "b32") for op in ("and", "or", "xor")), ("xor", "b64"), ("add", "u32"), ("add", "s32"),
    ("add", "u64"), ("inc", "u32"), ("dec", "u32"), ("min", "s32"), ("max", "u32"), ("min", "u64"),
    ("max", "s64"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "kind"), REDUCTIONS)
def test_reductions_of_integers(op: str, kind: str) -> None:
    code = np.dtype(f"u{int(kind[1:]) // 8}")
    x, y, z = noise().view(code), noise().view(code), np.zeros(BYTES, np.uint8)
    if op in ("inc", "dec"):
        y[::3] = x[::3]
        x[1::6] = 0
    body = FILL + (
        f"@%p0 bra OVER;\ncp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{kind} [%d0], [%r1], {BYTES};\n{DONE}OVER:\n"
    )
    wanted = [applied(op, kind, int(a), int(b), 0) for a, b in zip(x, y, strict=True)]
    assert run(body, x, y, z) == []
    assert x.tolist() == wanted


@pytest.mark.parametrize(
    "op", ["add.f32", "add.f64", "add.noftz.f16", "add.noftz.bf16", "min.f16", "max.bf16"]
)
def test_reductions_of_floats(op: str) -> None:
    name, kind = op.split(".")[0], op.split(".")[-1]
    width = {"f32": 4, "f64": 8}.get(kind, 2)
    a, b = (RANDOM.integers(-64, 64, BYTES // width).astype("f4") / 4 for _ in range(2))

    def coded(v: np.ndarray) -> np.ndarray:
        return to_bf16(v.astype("f4")) if kind == "bf16" else v.astype(f"f{width}")

    x, y, z = coded(a), coded(b), np.zeros(BYTES, np.uint8)
    body = FILL + (
        f"@%p0 bra OVER;\ncp.reduce.async.bulk.global.shared::cta.bulk_group.{op} [%d0], [%r1], {BYTES};\n{DONE}OVER:\n"
    )
    assert run(body, x, y, z) == []
    got = from_bf16(x) if kind == "bf16" else x
    fold = {"add": np.add, "min": np.minimum, "max": np.maximum}[name]
    assert got.astype("f8").tolist() == fold(a, b).tolist()


@pytest.mark.parametrize(
    ("to", "source", "count", "kind"),
    [
        (0, 0, 24, "misaligned"), (8, 0, 32, "misaligned"), (0, 8, 32, "misaligned"),
        (BYTES - 16, 0, 32, "out-of-bounds"), (0, 4096, 16, "out-of-bounds"),
    ],
)  # fmt: skip
def test_what_a_bulk_copy_may_not(to: int, source: int, count: int, kind: str) -> None:
    x, y, z = noise(), noise(), np.zeros(BYTES, np.uint8)
    body = FILL + (
        f"@%p0 bra OVER;\ncp.async.bulk.global.shared::cta.bulk_group [%d0+{to}], [%r1+{source}], {count};\n{DONE}OVER:\n"
    )
    old = x.copy()
    assert kind in run(body, x, y, z)
    assert x.tolist() == old.tolist()


def test_a_store_left_behind_is_reported() -> None:
    x, y, z = noise(), noise(), np.zeros(BYTES, np.uint8)
    store = f"@%p0 bra OVER;\ncp.async.bulk.global.shared::cta.bulk_group [%d0], [%r1], {BYTES};\ncp.async.bulk.commit_group; {{}}\nOVER:\n"
    assert run(FILL + store.format(""), x, y, z, model=STRICT) == ["left-pending"]
    assert run(FILL + store.format("cp.async.bulk.wait_group.read 0;"), x, y, z, model=STRICT) == []
    assert run(FILL + store.format("cp.async.bulk.wait_group.read 1;"), x, y, z, model=STRICT) == [
        "left-pending"
    ]


@pytest.mark.parametrize("waited", [False, True])
def test_a_load_left_behind_is_reported(waited: bool) -> None:
    x, y, z = noise(), noise(), np.zeros(BYTES, np.uint8)
    load = (
        f"@%p0 bra OVER;\nmbarrier.arrive.expect_tx.shared.b64 _, [%r2], {BYTES};\n"
        "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes "
        f"[%r1], [%d0], {BYTES}, [%r2];\nOVER:\n"
    )
    body = FILL + load + (wait() if waited else "")
    assert run(body, x, y, z, model=STRICT) == ([] if waited else ["left-pending"])
    assert run(body, x, y, z) == []


# Clusters ------------------------------------------------------------------------------------------

#: Both CTAs expect bytes, then all wait for both.
BOTH = "@%p0 bra READY; mbarrier.arrive.expect_tx.shared.b64 _, [%r2], {}; READY:\nbarrier.cluster.arrive; barrier.cluster.wait;\n"
MINE = f"mul.wide.u32 %d6, %r9, {BYTES}; add.u64 %d2, %d2, %d6;\n"


def test_one_copy_for_all_of_a_cluster() -> None:
    x, y, z = noise(), noise(), np.zeros(2 * BYTES, np.uint8)
    body = (
        FILL
        + BOTH.format(128)
        + (
            "setp.ne.u32 %p2, %r9, 1; or.pred %p2, %p2, %p0; @%p2 bra HERE; mov.b16 %h0, 3;\n"
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1+64], [%d0], 128, [%r2], %h0;\n"
            "HERE:\n" + wait() + MINE + TAKE + "barrier.cluster.arrive; barrier.cluster.wait;"
        )
    )
    assert run(body, x, y, z, ctas=2) == []
    wanted = y.copy()
    wanted[64:192] = x[:128]
    assert z.reshape(2, BYTES).tolist() == [wanted.tolist()] * 2


def test_bytes_go_to_another_cta() -> None:
    x, y, z = noise(), noise(), np.zeros(2 * BYTES, np.uint8)
    body = (
        FILL
        + BOTH.format(64)
        + (
            "@%p0 bra HERE; xor.b32 %r10, %r9, 1; mapa.shared::cluster.u32 %r11, %r1, %r10; mapa.shared::cluster.u32 %r12, %r2, %r10;\n"
            "add.u32 %r11, %r11, 256; cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r11], [%r1+16], 64, [%r12];\n"
            "HERE:\n" + wait() + MINE + TAKE + "barrier.cluster.arrive; barrier.cluster.wait;"
        )
    )
    assert run(body, x, y, z, ctas=2) == []
    wanted = y.copy()
    wanted[256:320] = y[16:80]
    assert z.reshape(2, BYTES).tolist() == [wanted.tolist()] * 2
    early = body.replace("HERE:", "st.shared.u32 [%r1+16], %r9;\nHERE:", 1)
    assert "race" in run(early, x, y, np.zeros_like(z), ctas=2)


@pytest.mark.parametrize(
    ("op", "kind", "values"),
    [
        ("st", "b32", 1), ("st", "b64", 1), ("st.v2", "b32", 2), ("st.v4", "b32", 4), ("st.v2", "b64", 2),
        *((f"red.{op}", kind, 1) for op, kind in (
            ("add", "u32"), ("add", "s32"), ("add", "u64"), ("min", "s32"), ("max", "u32"), ("inc", "u32"),
            ("dec", "u32"), ("and", "b32"), ("or", "b32"), ("xor", "b32"),
        )),
    ],
)  # fmt: skip
def test_stores_and_reductions_in_another_cta(op: str, kind: str, values: int) -> None:
    width = int(kind[1:]) // 8
    size = width * values
    x, y, z = noise(2 * BYTES), noise(), np.zeros(2 * BYTES, np.uint8)
    bank = "%r" if width == 4 else "%d"
    names = [f"{bank}{13 + i}" for i in range(values)]
    group = "{" + ", ".join(names) + "}" if values > 1 else names[0]
    name = op.split(".")
    opcode = (
        f"st.async.shared::cluster.mbarrier::complete_tx::bytes{'.' + name[1] if values > 1 else ''}.{kind}"
        if name[0] == "st"
        else f"red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{name[1]}.{kind}"
    )
    body = FILL + BOTH.format(32 * size) + (
        f"mul.wide.u32 %d6, %r9, {BYTES}; add.u64 %d7, %d0, %d6; mad.wide.u32 %d7, %r0, {size}, %d7;\n"
        + "".join(f"ld.global.{'b32' if width == 4 else 'b64'} {n}, [%d7+{i * width}];\n" for i, n in enumerate(names))
        + f"xor.b32 %r10, %r9, 1; mad.lo.u32 %r17, %r0, {size}, %r1; mapa.shared::cluster.u32 %r11, %r17, %r10; mapa.shared::cluster.u32 %r12, %r2, %r10;\n"
        f"{opcode} [%r11], {group}, [%r12];\n" + wait() + MINE + TAKE + "barrier.cluster.arrive; barrier.cluster.wait;"
    )  # fmt: skip
    assert run(body, x, y, z, ctas=2) == []
    code = np.dtype(f"u{width}")
    for cta, got in enumerate(z.reshape(2, BYTES)):
        wanted = y.copy().view(code)
        given = x.reshape(2, BYTES)[1 - cta].view(code)
        for i in range(32 * values):
            wanted[i] = applied(
                "exch" if name[0] == "st" else name[1], kind, int(wanted[i]), int(given[i]), 0
            )
        assert got.view(code).tolist() == wanted.tolist()


@pytest.mark.parametrize(("word", "kinds"), [(0, ["race"]), (3, ["race"]), (4, [])])
def test_no_word_of_a_store_to_another_cta_is_read_before_it_is_there(
    word: int, kinds: list[str]
) -> None:
    """One thread of a CTA stores four words; one of the other reads a word without a wait."""
    body = FILL + BOTH.format(16) + (
        "@%p0 bra HERE; xor.b32 %r10, %r9, 1; mapa.shared::cluster.u32 %r11, %r1, %r10; mapa.shared::cluster.u32 %r12, %r2, %r10;\n"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r11], {%r4, %r5, %r6, %r7}, [%r12];\n"
        f"ld.shared.b32 %r13, [%r1+{4 * word}];\nHERE:\n" + wait() + "barrier.cluster.arrive; barrier.cluster.wait;"
    )  # fmt: skip
    assert run(body, noise(), noise(), np.zeros(BYTES, np.uint8), ctas=2)[:1] == kinds


@pytest.mark.parametrize(
    ("lane", "expected", "kinds"),
    [("31", 512, []), ("30", 512, ["race"]), ("31", 128, ["barrier-bytes"]), ("31", 120, ["barrier-bytes"])],
)  # fmt: skip
def test_lanes_that_store_at_once_give_what_they_give_one_by_one(
    lane: str, expected: int, kinds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apart; two in one place; a phase that ends among them; bytes that no lane brings to none."""
    body = FILL + BOTH.format(expected) + (
        f"xor.b32 %r10, %r9, 1; and.b32 %r17, %r0, {lane}; mad.lo.u32 %r17, %r17, 16, %r1;\n"
        "mapa.shared::cluster.u32 %r11, %r17, %r10; mapa.shared::cluster.u32 %r12, %r2, %r10;\n"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r11], {%r0, %r5, %r6, %r7}, [%r12];\n"
        + wait() + TAKE + "barrier.cluster.arrive; barrier.cluster.wait;"
    )  # fmt: skip
    x, y = noise(), noise()

    def told() -> tuple[list[object], bytes]:
        out = np.zeros(BYTES, np.uint8)
        done = launch(HEAD + body + TAIL, [x, y, out], 2, 32, cluster=2)
        return done.diagnostics, out.tobytes()

    together, lanes = told(), []

    def one_by_one(self: Bulk, at: Any, bars: Any, warp: Any, size: int) -> Any:
        lanes.append(len(at))
        return ((slice(i, i + 1), int(warp[i]), int(bars[i])) for i in range(len(at)))

    monkeypatch.setattr(Bulk, "_together", one_by_one)
    assert told() == together
    assert lanes == [64]
    assert set(kinds) <= {found.kind for found in together[0]}


# Tensor maps ---------------------------------------------------------------------------------------


def example(rank: int = 5) -> TensorMap:
    # Every bit of every other field is set, so that one which is cleared shows.
    dims = tuple(64 << i for i in range(rank))
    strides = (2, *(4096 * 48**i for i in range(rank - 1)))
    made = tiled(1 << 40, dims, strides, (256,) * rank, "f16", 3)
    return replace(made, steps=(8,) * rank, nan_fill=True)


FIELDS = [
    *(("box_dim", i, v, {"box": v}) for i in range(5) for v in (1, 256)),
    *(("element_stride", i, v, {"steps": v}) for i in range(5) for v in (1, 8)),
    *(("global_dim", i, v, {"dims": v}) for i in range(5) for v in (1, 2**32)),
    *(("global_stride", i, v, {"strides": v}) for i in range(4) for v in (16, (1 << 39) + 48)),
    *(("swizzle_mode", 0, v, {"swizzle": v}) for v in range(4)),
]


@pytest.mark.parametrize(("field", "at", "value", "changed"), FIELDS)
def test_a_field_is_replaced_and_no_other(field: str, at: int, value: int, changed: dict) -> None:
    old = example()
    new = TensorMap.decode(replaced(old.encode(), field, at, value))
    for name in (
        "base",
        "kind",
        "dims",
        "strides",
        "box",
        "steps",
        "swizzle",
        "interleave",
        "nan_fill",
    ):
        wanted = getattr(old, name)
        if name in changed and isinstance(wanted, tuple):
            place = at + (name == "strides")
            wanted = (*wanted[:place], value, *wanted[place + 1 :])
        elif name in changed:
            wanted = value
        assert getattr(new, name) == wanted, name


def test_the_rank_is_one_less_than_the_dimensions() -> None:
    assert TensorMap.decode(replaced(example().encode(), "rank", 0, 1)).dims == (64, 128)


@pytest.mark.parametrize("space", ["global", "shared::cta"])
def test_a_kernel_changes_a_map_and_loads_by_it(space: str) -> None:
    x = np.arange(256, dtype=np.float32)
    tensor = tiled(x.ctypes.data, (16, 8), (4, 64), (16, 2), "f32")
    room = np.zeros(256, np.uint8)
    start = -room.ctypes.data % 128
    maps = room[start : start + 128]
    maps[:] = np.frombuffer(tensor.encode(), np.uint8)
    z = np.zeros(128, np.float32)
    at = "%d8" if space == "global" else "%d9"
    change = f"tensormap.replace.tile.box_dim.{space}.b1024.b32 [{at}], 1, %r14; tensormap.replace.tile.global_address.{space}.b1024.b64 [{at}], %d10;\n"
    body = (
        "mov.u64 %d8, %d1; cvt.u64.u32 %d9, %r1; mov.u32 %r14, 4; add.u64 %d10, %d0, 512;\n"
        "setp.lt.u32 %p3, %r0, 8; mad.lo.u32 %r15, %r0, 16, %r1; mad.wide.u32 %d11, %r0, 16, %d8;\n"
        "@!%p3 bra FULL; ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%d11]; st.shared.v4.b32 [%r15], {%r4, %r5, %r6, %r7}; FULL: bar.warp.sync -1;\n"
        "@%p0 bra MADE; mbarrier.init.shared.b64 [%r2], 1; fence.mbarrier_init.release.cluster;\n"
        + change
        + "MADE: bar.warp.sync -1;\n"
        + (
            "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d8], [%r1], 128;\n"
            if space != "global"
            else "fence.proxy.tensormap::generic.release.gpu;\n"
        )
        + "fence.proxy.tensormap::generic.acquire.gpu [%d8], 128; bar.warp.sync -1; fence.proxy.async.shared::cta;\n"
        "@%p0 bra HERE; mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 256; mov.u32 %r16, 0; mov.u32 %r17, 1;\n"
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1+512], [%d8, {%r16, %r17}], [%r2];\n"
        "HERE:\n"
        + wait()
        + "setp.ge.u32 %p4, %r0, 16; @%p4 bra OVER; add.u64 %d4, %d2, %d3; ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r3+512]; st.global.v4.b32 [%d4], {%r4, %r5, %r6, %r7};\nOVER:\n"
    )
    assert run(body, x, maps, z) == []
    wanted = np.zeros(128, np.float32)
    wanted[:64] = x[128 + 16 : 128 + 80]
    assert z[:64].tolist() == wanted[:64].tolist()


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("add", "f32"),
        ("min", "s32"),
        ("max", "s32"),
        ("and", "u32"),
        ("or", "u32"),
        ("xor", "u32"),
        ("add", "f16"),
        ("add", "bf16"),
    ],
)
def test_boxes_are_reduced_into_a_tensor(op: str, kind: str) -> None:
    width = 2 if kind in ("f16", "bf16") else 4
    a, b = (RANDOM.integers(-32, 32, (16, 16)) for _ in range(2))

    def coded(v: np.ndarray) -> np.ndarray:
        if kind == "bf16":
            return to_bf16(v.astype("f4"))
        return v.astype({"f32": "f4", "s32": "i4", "u32": "u4", "f16": "f2"}[kind])

    x, box = coded(a), np.zeros((4, 16), coded(b).dtype)
    box[:] = coded(b[:4])
    y = np.zeros(BYTES, np.uint8)
    y[: box.nbytes] = box.view(np.uint8).ravel()
    t = tiled(x.ctypes.data, (16, 16), (width, 16 * width), (16, 4), kind)
    raw = np.frombuffer(t.encode(), np.uint8).copy()
    room = np.zeros(256, np.uint8)
    start = -room.ctypes.data % 128
    room[start : start + 128] = raw
    body = FILL + (
        f"@%p0 bra OVER; mov.u32 %r16, 8; mov.u32 %r17, 14;\ncp.reduce.async.bulk.tensor.2d.global.shared::cta.{op}.tile.bulk_group [%d2, {{%r16, %r17}}], [%r1];\n{DONE}OVER:\n"
    )
    wanted = a.copy()
    fold = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }[op]
    wanted[14:16, 8:] = fold(a[14:16, 8:], b[:2, :8])  # The rest of the box lies outside.
    assert run(body, x, y, room[start : start + 128]) == []
    assert x.tolist() == coded(wanted).tolist()


# Boxes ---------------------------------------------------------------------------------------------
def placed_maps(*maps: TensorMap, off: int = 0) -> np.ndarray:
    """Their bytes one after the other, ``off`` bytes past a multiple of 128."""
    raw = b"".join(t.encode() for t in maps)
    room = np.zeros(len(raw) + 256, np.uint8)
    start = -room.ctypes.data % 128 + off
    room[start : start + len(raw)] = np.frombuffer(raw, np.uint8)
    return room[start : start + len(raw)]


MADE = "@%p0 bra MADE; mbarrier.init.shared.b64 [%r2], 1; fence.mbarrier_init.release.cluster; MADE: bar.sync 0;\n"


def there_and_back(count: int, at: int = 128, more: str = "") -> str:
    """Each CTA brings a box of its own and stores it by the second map."""
    return MADE + (
        "@%p0 bra HERE; add.u64 %d8, %d1, 128; mov.u32 %r16, -1; mad.lo.u32 %r17, %r9, 3, 1;\n"
        f"mbarrier.arrive.expect_tx.shared.b64 _, [%r2], {count}; {more}\n"
        f"cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1+{at}], [%d1, {{%r16, %r17}}], [%r2];\n"
        "HERE:\n" + wait() + "@%p0 bra OVER;\n"
        f"cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d8, {{%r16, %r17}}], [%r1+{at}];\n{DONE}OVER:\n"
    )


WIDTHS = {
    "u8": 1, "u16": 2, "u32": 4, "s32": 4, "u64": 8, "s64": 8, "f16": 2, "f32": 4, "f64": 8, "bf16": 2,
}  # fmt: skip
BOXES = [((16, 2), 0), ((3, 2), 0), ((1, 1), 0), ((5, 3), 0), ((8, 3), 1), ((16, 2), 2)]


@pytest.mark.parametrize("ctas", [1, 2])
@pytest.mark.parametrize(
    ("box", "swizzle", "kind"),
    [
        *((*box, kind) for box in BOXES for kind in ("f32", "f64")),
        *(((16, 3), 0, kind) for kind in WIDTHS),
    ],
)
def test_boxes_come_and_go(box: tuple[int, int], swizzle: int, kind: str, ctas: int) -> None:
    width = WIDTHS[kind]
    x = RANDOM.integers(1, 200, (9, 32)).astype(f"u{width}")
    z = np.zeros_like(x)
    maps = placed_maps(
        *(tiled(v.ctypes.data, (20, 9), (width, 32 * width), box, kind, swizzle) for v in (x, z))
    )
    assert run(there_and_back(width * box[0] * box[1]), x, maps, z, ctas) == []
    wanted = np.zeros_like(z)
    for cta in range(ctas):
        rows, columns = slice(3 * cta + 1, 3 * cta + 1 + box[1]), slice(0, box[0] - 1)
        wanted[rows, columns] = x[rows, columns]
    assert z.tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("off", "at", "kind"),
    [
        (16, 128, "misaligned"),
        (0, 64, "misaligned"),
        (0, 1024, "out-of-bounds"),
        (0, 2 * BYTES - 128, "out-of-bounds"),
    ],
)
def test_where_a_map_and_a_box_may_lie(off: int, at: int, kind: str) -> None:
    x, z = np.ones((9, 24), np.float32), np.zeros((9, 24), np.float32)
    maps = placed_maps(
        *(tiled(v.ctypes.data, (20, 9), (4, 96), (16, 4), "f32") for v in (x, z)), off=off
    )
    assert kind in run(there_and_back(256, at), x, maps, z)


def test_a_box_of_what_nothing_wrote_is_reported() -> None:
    x, z = np.ones((9, 24), np.float32), np.zeros((9, 24), np.float32)
    maps = placed_maps(*(tiled(v.ctypes.data, (20, 9), (4, 96), (16, 4), "f32") for v in (x, z)))
    done = launch(HEAD + there_and_back(256) + TAIL, [x, maps, z], 1, 32, unwritten=[x])
    assert [d.kind for d in done.diagnostics] == ["uninitialized-read"]
    done = launch(HEAD + there_and_back(256) + TAIL, [x, maps, z], 1, 32, unwritten=[z])
    assert done.diagnostics == []


def test_a_box_over_its_own_barrier_is_reported() -> None:
    x, z = np.ones((9, 24), np.float32), np.zeros((9, 24), np.float32)
    maps = placed_maps(*(tiled(v.ctypes.data, (20, 9), (4, 96), (16, 1), "f32") for v in (x, z)))
    head = HEAD.replace(".shared .align 8 .b8 bar[8];", "").replace(
        "%r2, bar;", "%r2, s; add.u32 %r2, %r2, 184;"
    )
    for at, said in ((128, True), (256, False)):
        done = launch(head + there_and_back(64, at) + TAIL, [x, maps, z], 1, 32)
        assert any("is overwritten while in use" in d.message for d in done.diagnostics) is said


@pytest.mark.parametrize("steps", [(2, 1), (1, 3), (4, 2)])
def test_boxes_take_every_nth_element(steps: tuple[int, int]) -> None:
    x = RANDOM.integers(1, 200, (9, 24)).astype(np.float32)
    z = np.zeros((9, 24), np.float32)
    source = replace(tiled(x.ctypes.data, (20, 9), (4, 96), (16, 4), "f32"), steps=steps)
    shape = source.shape
    target = tiled(z.ctypes.data, (20, 9), (4, 96), shape, "f32")
    count = 4 * shape[0] * shape[1]
    body = there_and_back(count).replace("mov.u32 %r16, -1;", "mov.u32 %r16, 0;")
    assert run(body, x, placed_maps(source, target), z) == []
    wanted = np.zeros_like(z)
    taken = x[:, :20][1 :: steps[1], :: steps[0]][: shape[1], : shape[0]]
    wanted[1 : 1 + taken.shape[0], : taken.shape[1]] = taken
    assert z.tolist() == wanted.tolist()


@pytest.mark.parametrize("side", [0, 1])
def test_a_box_for_both_of_a_pair_signals_the_cta_that_the_barrier_names(side: int) -> None:
    x = RANDOM.integers(1, 200, (9, 24)).astype(np.float32)
    z = np.zeros((9, 24), np.float32)
    maps = placed_maps(*(tiled(v.ctypes.data, (20, 9), (4, 96), (16, 2), "f32") for v in (x, z)))
    meet = "barrier.cluster.arrive; barrier.cluster.wait;\n"
    body = (
        MADE
        + f"add.u64 %d8, %d1, 128; mov.u32 %r16, 0; mov.u32 %r17, 1; shl.b32 %r18, %r9, 2; setp.ne.u32 %p2, %r9, {side}; mov.b16 %h0, 3;\n"
        "or.pred %p3, %p2, %p0; @!%p3 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 256;\n"
        + meet
        + f"setp.ne.u32 %p4, %r9, 0; or.pred %p4, %p4, %p0; @%p4 bra HERE; mapa.shared::cluster.u32 %r12, %r2, {side};\n"
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.cta_group::2 [%r1+128], [%d1, {%r16, %r17}], [%r12], %h0;\n"
        "HERE: @%p2 bra THERE;\n"
        + wait()
        + "THERE:\n"
        + meet
        + f"@%p0 bra OVER;\ncp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d8, {{%r16, %r18}}], [%r1+128];\n{DONE}OVER:\n"
    )
    head = HEAD.replace("sm_90a", "sm_100a")
    done = launch(head + body + TAIL, [x, maps, z], 2, 32, cluster=2)
    assert [d.kind for d in done.diagnostics] == []
    wanted = np.zeros_like(z)
    for cta in (0, 1):
        wanted[4 * cta : 4 * cta + 2, :16] = x[1:3, :16]
    assert z.tolist() == wanted.tolist()


@pytest.mark.parametrize("ctas", [1, 2])
@settings(max_examples=8, deadline=None)
@given(st.sampled_from([*BOXES, ((16, 3), 0), ((4, 3), 0)]), st.data())
def test_bytes_of_a_box_may_not_be_read_before_they_are_there(
    ctas: int, case: tuple[tuple[int, int], int], data: st.DataObject
) -> None:
    """A thread reads one byte while a box comes in; those around it are its own to read."""
    (wide, high), swizzle = case
    x = np.ones((9, 32), np.float32)
    maps = placed_maps(tiled(x.ctypes.data, (20, 9), (4, 128), case[0], "f32", swizzle))
    count, start = 4 * wide * high, 128
    at = start + data.draw(
        st.sampled_from([-1, 0, 1, 3, 15, count // 2, count - 1, count, count + 1])
    )
    fill = "mov.u32 %r4, 0; add.u32 %r5, %r1, %r0;" + "".join(
        f"st.shared.u8 [%r5+{32 * i}], %r4;" for i in range(2 * BYTES // 32)
    )
    body = MADE.replace("bar.sync 0;", fill + " fence.proxy.async.shared::cta; bar.sync 0;") + (
        "@%p0 bra HERE; mov.u32 %r16, 0;\n"
        f"mbarrier.arrive.expect_tx.shared.b64 _, [%r2], {count};\n"
        f"cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1+{start}], [%d1, {{%r16, %r16}}], [%r2];\n"
        f"ld.shared.u8 %r17, [%r1+{at}];\nHERE:\n" + wait()
    )
    done = launch(HEAD + body + TAIL, [x, maps, x], ctas, 32, cluster=ctas)
    inside = start <= at < start + count
    assert [d.kind for d in done.diagnostics] == ["race"] * inside
    if inside:
        assert (
            f"shared {0x400 + at:#x} is written by bulk copy of warp 0"
            in done.diagnostics[0].message
        )
        assert "read by thread 0 (warp 0, lane 0)" in done.diagnostics[0].message


@pytest.mark.parametrize("kind", WIDTHS)
def test_a_map_names_its_type(kind: str) -> None:
    assert str(tiled(0, (20, 9), (WIDTHS[kind], 128), (4, 2), kind)) == (
        f"{kind} tensor map of [20, 9], box [4, 2]"
    )


def test_a_map_of_floats_without_subnormals_is_one_of_floats() -> None:
    from mla_var3.emulator.units import tensormap

    assert {kind: tensormap.NAMES[kind] for kind in (7, 8)} == {7: "f32", 8: "f32"}
    assert set(tensormap.NAMES) == set(tensormap.ELEMENT)


@pytest.mark.parametrize("mask", [1, 2, 3])
def test_a_copy_goes_to_the_ctas_of_its_mask_alone(mask: int) -> None:
    x, y, z = noise(), noise(), np.zeros(2 * BYTES, np.uint8)
    body = (
        FILL
        + BOTH.format(128).replace(
            "@%p0 bra READY;",
            f"shr.u32 %r16, {mask}, %r9; and.b32 %r16, %r16, 1; setp.ne.u32 %p3, %r16, 1; or.pred %p4, %p3, %p0; @%p4 bra READY;",
        )
        + (
            f"setp.ne.u32 %p2, %r9, 1; or.pred %p2, %p2, %p0; @%p2 bra HERE; mov.b16 %h0, {mask};\n"
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1+64], [%d0], 128, [%r2], %h0;\n"
            "HERE: @%p3 bra TAKE;\n"
            + wait()
            + "TAKE:"
            + MINE
            + TAKE
            + "barrier.cluster.arrive; barrier.cluster.wait;"
        )
    )
    assert run(body, x, y, z, ctas=2) == []
    for cta, rows in enumerate(z.reshape(2, BYTES)):
        wanted = y.copy()
        if mask >> cta & 1:
            wanted[64:192] = x[:128]
        assert rows.tolist() == wanted.tolist()
