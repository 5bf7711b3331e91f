# ruff: noqa: E501  # A PTX statement stays on its line.
"""Accesses to each kind of memory: parameters at any byte, and what is said of a bad address."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.emulator.launcher import launch
from mla_var3.emulator.local import Parameters
from mla_var3.emulator.options import DEFAULT, STRICT, Options
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


# What an access touches ------------------------------------------------------------------------
SLOT, SLOTS = 64, 8


@dataclass(frozen=True)
class Touch:
    """An access to a slot: by lane 0, or by lanes 0 and 1 side by side."""

    does: str
    width: int
    at: int
    lanes: int = 1

    @property
    def bytes(self) -> set[int]:
        return set(range(self.at, self.at + self.width * self.lanes))

    def text(self, space: str, slot: int) -> str:
        where = f"[%rd{self.width}+{SLOT * slot + self.at}]"
        held = {8: "%rd30", 16: "{%r30, %r31, %r32, %r33}"}.get(self.width, "%r30")
        wide = "v4.b32" if self.width == 16 else f"b{8 * self.width}"
        match self.does:
            case "read":
                return f"@%p{self.lanes} ld{space}.{wide} {held}, {where};"
            case "write":
                return f"@%p{self.lanes} st{space}.{wide} {where}, {held};"
        return f"@%p{self.lanes} red{space}.add.u{8 * self.width} {where}, {held};"


@st.composite
def touches(draw: st.DrawFn, *kinds: str) -> Touch:
    does = draw(st.sampled_from(kinds))
    width = draw(st.sampled_from([4, 8] if does == "add" else [1, 2, 4, 8, 16]))
    lanes = draw(st.sampled_from([1, 1, 2]))
    return Touch(does, width, width * draw(st.integers(0, SLOT // width - lanes)), lanes)


#: Where the slots are: the space of the instructions, and the address of the first slot.
SPACES = {
    "global": (".global", "ld.param.u64 %rd0, [x0];"),
    "generic, global": ("", "ld.param.u64 %rd0, [x0];"),
    "shared": (".shared", "mov.u32 %r5, a; cvt.u64.u32 %rd0, %r5;"),
    "generic, shared": ("", "mov.u32 %r5, a; cvt.u64.u32 %rd0, %r5; cvta.shared.u64 %rd0, %rd0;"),
    "cluster": (".shared::cluster", "mov.u32 %r5, a; cvt.u64.u32 %rd0, %r5; mapa.shared::cluster.u64 %rd0, %rd0, 1;"),
}  # fmt: skip
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def of_two_warps(first: str, second: str, space: str, second_warp: int, ctas: int) -> str:
    """Warp 0 and another one, maybe of the other CTA, each do what they do."""
    lanes = " ".join(
        f"mul.wide.u32 %rd{w}, %r40, {w}; add.u64 %rd{w}, %rd{w}, %rd0;" for w in (1, 2, 4, 8, 16)
    )
    fill = "shl.b32 %r6, %r1, 3; mov.u32 %r5, a; add.u32 %r5, %r5, %r6; st.shared.v2.b32 [%r5], {%r30, %r30};"
    return f"""
.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x0)
{{
.reg .pred %p<9>; .reg .b32 %r<50>; .reg .b64 %rd<50>; .shared .align 16 .b8 a[{SLOT * SLOTS}];
mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; mov.u32 %r3, %ctaid.x; mad.lo.u32 %r2, %r3, 2, %r2; and.b32 %r40, %r1, 31;
setp.lt.u32 %p1, %r40, 1; setp.lt.u32 %p2, %r40, 2; mov.b32 %r30, 0; {fill}
{MEET if ctas > 1 else "bar.sync 0;"}
{SPACES[space][1]} {lanes}
setp.ne.u32 %p3, %r2, 0; setp.ne.u32 %p4, %r2, {second_warp};
@%p3 bra OTHER;
{first}
OTHER: @%p4 bra END;
{second}
END: {MEET if ctas > 1 else ""}
ret;
}}
"""


@pytest.mark.parametrize(("space", "ctas", "cluster"), [(s, 1, 1) for s in SPACES if s != "cluster"] + [("global", 2, 1), ("generic, global", 2, 2), ("cluster", 2, 2)])  # fmt: skip
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_accesses_race_where_their_bytes_meet(
    space: str, ctas: int, cluster: int, data: st.DataObject
) -> None:
    kinds = touches("read", "write", "write", "add")
    pairs = [(data.draw(kinds), data.draw(kinds)) for _ in range(SLOTS)]
    texts = ["\n".join(pair[i].text(SPACES[space][0], n) for n, pair in enumerate(pairs)) for i in (0, 1)]  # fmt: skip
    text = of_two_warps(*texts, space, 1 if ctas == 1 else 2, cluster)
    # Nothing uses what is read, and all writes are of zeros.
    options = Options(model=replace(DEFAULT, unused_reads=False, equal_stores=False))
    memory = [np.zeros(SLOT * SLOTS, np.uint8)]
    done = launch(text, memory, ctas, 64, cluster=cluster, options=options)
    found = {}
    for d in done.diagnostics:
        assert d.kind in ("race", "global-race"), d
        place = re.match(r"global byte (\d+) of|shared (0x[0-9a-f]+) is", d.message)
        assert place, d
        at = int(place[1]) if place[1] else int(place[2], 16) - 0x400
        found[at // SLOT] = at % SLOT
    wanted = {}
    for n, (a, b) in enumerate(pairs):
        both = a.bytes & b.bytes
        if a.does == b.does == "add" and a.width != b.width:
            found.pop(n, None)  # A race by the PTX ISA; only shared memory's is told.
        elif both and ("write" in (a.does, b.does) or a.does != b.does):
            wanted[n] = min(both)
    assert found == wanted


UNWRITTEN = {
    "global": (".global", "ld.param.u64 %rd0, [x0];"),
    "shared": SPACES["shared"],
    "generic, shared": SPACES["generic, shared"],
    "local": (".local", "mov.u64 %rd0, l;"),
    "generic, local": ("", "mov.u64 %rd0, l; cvta.local.u64 %rd0, %rd0;"),
}


@pytest.mark.parametrize("space", UNWRITTEN)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_a_read_past_what_was_written_is_reported(space: str, data: st.DataObject) -> None:
    """A lane writes a part of each slot and reads a part of it."""
    writes, reads = (
        [data.draw(touches(kind).filter(lambda t: t.lanes == 1)) for _ in range(SLOTS)]
        for kind in ("write", "read")
    )
    suffix, base = UNWRITTEN[space]
    lanes = " ".join(f"mov.b64 %rd{w}, %rd0;" for w in (1, 2, 4, 8, 16))
    steps = "\n".join(t.text(suffix, n) for part in (writes, reads) for n, t in enumerate(part))
    text = f"""
.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x0)
{{
.reg .pred %p<9>; .reg .b32 %r<50>; .reg .b64 %rd<50>; .reg .b32 %t;
.shared .align 16 .b8 a[{SLOT * SLOTS}]; .local .align 16 .b8 l[{SLOT * SLOTS}];
mov.u32 %t, %tid.x; setp.eq.u32 %p1, %t, 5; {base} {lanes}
{steps}
ret;
}}
"""
    array = np.zeros(SLOT * SLOTS, np.uint8)
    done = launch(text, [array], 1, 32, unwritten=[array], options=Options(model=STRICT))
    assert {d.kind for d in done.diagnostics} <= {"uninitialized-read"}
    said = [d.message for d in done.diagnostics]
    shared = "shared" in space
    wanted = []
    for n, (write, read) in enumerate(zip(writes, reads, strict=True)):
        if fresh := read.bytes - write.bytes:
            # Of shared memory the first byte, of others the access.
            at = SLOT * n + (min(fresh) if shared else read.at)
            wanted.append(
                f"shared {0x400 + at:#x} is read"
                if shared
                else f"local byte {at} is read"
                if "local" in space
                else f"global read of {read.width} bytes, {at} bytes into"
            )
    assert len(said) == len(wanted), (said, wanted)
    assert all(text.startswith(start) for text, start in zip(said, wanted, strict=True)), said
    assert all("thread 5" in d.who or "warp 0" in d.who for d in done.diagnostics)


@pytest.mark.parametrize("offset", [-12, -4, 0, 8])
def test_an_offset_is_added_to_either_register(offset: int) -> None:
    kernel = Snippet(
        {
            "where": "mov.u32 %r2, a; shl.b32 %r4, %r1, 4; add.u32 %r5, %r2, %r4; add.u32 %r5, %r5, 16; cvt.u64.u32 %rd3, %r4; add.u64 %rd4, %rd0, %rd3; add.u64 %rd4, %rd4, 16;",
            "move": f"ld.global.u32 %r6, [%rd4+{offset}]; st.shared.u32 [%r5+{offset}], %r6; cvt.u64.u32 %rd5, %r5; ld.shared.u32 %r7, [%rd5+{offset}];",
            "give": f"add.u64 %rd6, %rd1, %rd3; add.u64 %rd6, %rd6, 16; st.global.u32 [%rd6+{offset}], %r7;",
        },
        words=(160, 160),
        shared=".shared .align 16 .b8 a[600];",
        block=32,
    )
    (x, y), done = kernel.run()
    assert done.diagnostics == []
    at = 4 + np.arange(32) * 4 + offset // 4
    assert (y[at] == x[at]).all()
    assert (np.delete(y, at) == np.delete(np.arange(160) + 1000, at)).all()


@pytest.mark.parametrize("op", ["st", "atom"])
def test_of_lanes_past_the_end_the_others_do_their_work(op: str) -> None:
    act = {
        "st": "st.shared.u32 [%r5], %r1; mov.u32 %r7, 5;",
        "atom": "atom.shared.exch.b32 %r7, [%r5], %r1;",
    }[op]
    kernel = Snippet(
        {
            "fill": "mov.u32 %r2, a; shl.b32 %r4, %r1, 2; add.u32 %r5, %r2, %r4; mov.u32 %r6, 5; st.shared.u32 [%r5], %r6; bar.sync 0;",
            "act": f"setp.eq.u32 %p1, %r1, 9; @%p1 add.u32 %r5, %r5, 4000; {act} @%p1 sub.u32 %r5, %r5, 4000; bar.sync 0;",
            "give": "ld.shared.u32 %r6, [%r5]; cvt.u64.u32 %rd3, %r4; add.u64 %rd4, %rd0, %rd3; st.global.u32 [%rd4], %r6; st.global.u32 [%rd4+128], %r7;",
        },
        words=(64,),
        shared=".shared .align 16 .b8 a[128];",
        block=32,
    )
    (out,), done = kernel.run()
    assert [d.kind for d in done.diagnostics] == ["out-of-bounds"]
    assert "lane 9" in done.diagnostics[0].who
    rest = np.delete(np.arange(32), 9)
    assert (out[rest] == rest).all()
    assert out[9] == 5
    assert (out[32 + rest] == 5).all()


@pytest.mark.parametrize(("at", "fine"), [(0, True), (8, True), (28, False), (32, False)])
def test_parameters_have_an_end(at: int, fine: bool) -> None:
    text = (
        ".version 8.8\n.target sm_90a\n.address_size 64\n"
        ".visible .entry k(.param .u64 o, .param .u64 p) {\n.reg .b64 %d<5>;\n"
        "ld.param.u64 %d0, [o]; mov.b64 %d1, o; cvta.param.u64 %d1, %d1;\n"
        f"add.u64 %d1, %d1, {at}; ld.b64 %d2, [%d1]; st.global.b64 [%d0], %d2; ret; }}\n"
    )
    out, more = np.zeros(1, np.uint64), np.zeros(1, np.uint64)
    if fine:
        assert launch(text, [out, more], 1, 1).diagnostics == []
    else:
        with pytest.raises(EmulatorError, match="parameters are read past their end"):
            launch(text, [out, more], 1, 1)


def test_a_read_of_two_arrays_at_once_is_seen_in_both() -> None:
    """Each half of the lanes reads an array that the other warp writes."""
    kernel = Snippet(
        {
            "who": "setp.ge.u32 %p1, %r1, 32; and.b32 %r2, %r1, 31; setp.lt.u32 %p2, %r2, 16;"
            " selp.b64 %rd3, %rd0, %rd1, %p2; mul.wide.u32 %rd4, %r2, 4; add.u64 %rd3, %rd3, %rd4;",
            "other": "@%p1 bra WRITES;",
            "read": "ld.global.b32 %r3, [%rd3]; bra END;",
            "write": "WRITES: st.global.b32 [%rd3], %r1;",
            "end": "END:",
        },
        words=(64, 64),
    )
    strict = Options(model=STRICT)
    (both,) = kernel.run(options=strict)[1].diagnostics
    assert (both.kind, both.times) == ("global-race", 2)
    apart = {"write": "WRITES: add.u64 %rd3, %rd3, 128; st.global.b32 [%rd3], %r1;"}
    assert kernel.run(apart, strict)[1].diagnostics == []


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("at", [0, 8, 24, 32, 40, 48])
def test_a_vector_of_parameters_ends_with_them(count: int, at: int) -> None:
    target = "%d2" if count == 1 else "{%d2, %d3}"
    vector = ".v2" if count == 2 else ""
    text = (
        ".version 8.8\n.target sm_90a\n.address_size 64\n"
        ".visible .entry k(.param .u64 o, .param .align 8 .b8 p[16]) {\n.reg .b64 %d<5>;\n"
        "ld.param.u64 %d0, [o]; mov.b64 %d1, o; cvta.param.u64 %d1, %d1;\n"
        f"add.u64 %d1, %d1, {at}; ld{vector}.b64 {target}, [%d1]; st.global.b64 [%d0], %d2; ret; }}\n"
    )
    end = len(Parameters(bytes(24)).bytes)
    out = np.zeros(1, np.uint64)
    if at + 8 * count <= end:
        assert launch(text, [out, bytes(range(16))], 1, 1).diagnostics == []
    else:
        with pytest.raises(EmulatorError, match="parameters are read past their end"):
            launch(text, [out, bytes(range(16))], 1, 1)


@pytest.mark.parametrize("size", [64, 65, 66, 68, 72])
@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_what_lies_past_the_end_is_told_once(size: int, width: int) -> None:
    """Shared memory may end at any byte; where an access goes instead is aligned."""
    held = {1: "%h1", 2: "%h1", 4: "%r4", 8: "%rd7"}[width]
    kernel = Snippet(
        {"fill": ACCESS.steps["start"], "access": f"ld.shared.b{8 * width} {held}, [%r2+80];"},
        words=(16,),
        shared=f".shared .align 16 .b8 a[{size}];",
    )
    _, done = kernel.run()
    kinds = [d.kind for d in done.diagnostics]
    assert [k for k in kinds if k != "uninitialized-read"] == ["out-of-bounds"]


def test_bytes_of_each_kind_of_memory_are_counted() -> None:
    kernel = Snippet(
        {
            "start": ".local .align 16 .b8 held[32]; mov.u64 %rd5, held; mov.u32 %r2, a; shl.b32 %r4, %r1, 2; add.u32 %r5, %r2, %r4; cvt.u64.u32 %rd3, %r4; add.u64 %rd4, %rd0, %rd3; mov.u32 %r6, 1; mov.u32 %r7, 2;",
            "local": "st.local.v2.b32 [%rd5], {%r6, %r7}; ld.local.b32 %r8, [%rd5+4];",
            "shared": "st.shared.b32 [%r5], %r6; ld.shared.b32 %r9, [%r5];",
            "global": "st.global.b32 [%rd4], %r6; ld.global.b16 %h1, [%rd4];",
        },
        block=96,
    )
    _, done = kernel.run()
    assert done.diagnostics == []
    found = {what: int(count.sum()) for what, count in done.counts.bytes.items() if count.any()}
    assert found == {
        "local write": 96 * 8, "local read": 96 * 4, "shared write": 96 * 4,
        "shared read": 96 * 4, "global write": 96 * 4, "global read": 96 * 2,
    }  # fmt: skip
