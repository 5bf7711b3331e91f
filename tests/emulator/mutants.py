"""Seeded bugs in the six kernels: what is changed, and what must be reported where."""

from __future__ import annotations

from dataclasses import dataclass

from tests.emulator.kernels import ALL


@dataclass(frozen=True)
class Mutant:
    """One bug.

    Attributes:
        kernel: Name of the kernel.
        name: The mistake in words.
        edits: New text per mark; empty leaves the line out.
        kinds: Kinds of which one must be reported.
        lines: Marks of which one must be among the two lines of that report.
        strict: It is a bug only if hardware does no more than PTX promises.
    """

    kernel: str
    name: str
    edits: dict[str, str]
    kinds: tuple[str, ...]
    lines: tuple[str, ...]
    strict: bool = False


def _m(
    kernel: str, name: str, edits: dict[str, str], kinds: str, lines: str, strict: bool = False
) -> Mutant:
    return Mutant(kernel, name, edits, tuple(kinds.split()), tuple(lines.split()), strict)


def _text(kernel: str, mark: str) -> str:
    k = ALL[kernel]
    return k.body.splitlines()[k.line(mark) - 1].partition("//")[0].strip()


def _edit(kernel: str, mark: str, old: str, new: str) -> dict[str, str]:
    text = _text(kernel, mark)
    assert old in text, (kernel, mark, old)
    return {mark: text.replace(old, new)}


MUTANTS = [
    # A tile through shared memory.
    _m("mirror", "no barrier between write and read", {"ready": ""}, "race", "fill take"),
    _m("mirror", "no barrier before the buffer is reused", {"free": ""}, "race", "fill take"),
    _m("mirror", "nothing is written", {"fill": ""}, "uninitialized-read", "take"),
    _m(
        "mirror",
        "load past the end",
        _edit("mirror", "fetch", "[%rd4]", "[%rd4+8192]"),
        "out-of-bounds",
        "fetch",
    ),
    _m(
        "mirror",
        "store past the end",
        _edit("mirror", "store", "[%rd5]", "[%rd5+8192]"),
        "out-of-bounds",
        "store",
    ),
    _m(
        "mirror",
        "write past shared memory",
        _edit("mirror", "fill", "[%r5]", "[%r5+512]"),
        "out-of-bounds",
        "fill",
    ),
    _m(
        "mirror",
        "read past shared memory",
        _edit("mirror", "take", "[%r6]", "[%r6+256]"),
        "out-of-bounds",
        "take",
    ),
    _m(
        "mirror",
        "misaligned write",
        _edit("mirror", "fill", "[%r5]", "[%r5+2]"),
        "misaligned",
        "fill",
    ),
    _m(
        "mirror",
        "misaligned load",
        _edit("mirror", "fetch", "[%rd4]", "[%rd4+2]"),
        "misaligned",
        "fetch",
    ),
    _m(
        "mirror",
        "one tile too many",
        _edit("mirror", "count", "%r1;", "%r1; setp.le.u32 %p1, %r7, %r1;"),
        "out-of-bounds",
        "fetch store",
    ),
    _m(
        "mirror",
        "barrier for half of the threads",
        _edit("mirror", "ready", "bar.sync 0;", "bar.sync 0, 64;"),
        "race barrier-mismatch",
        "fill take ready",
    ),
    _m(
        "mirror",
        "two warps skip the barrier",
        _edit("mirror", "ready", "bar.sync 0;", "setp.lt.u32 %p9, %r2, 64; @%p9 bar.sync 0;"),
        "race deadlock barrier-mismatch",
        "fill take ready free",
    ),
    _m(
        "mirror",
        "wrong half is read back",
        _edit("mirror", "mirror", "127", "255"),
        "out-of-bounds",
        "take",
    ),
    # cp.async and mma.
    _m(
        "product",
        "no wait for the copies",
        {"wait": ""},
        "race",
        "first_a next_a first_b next_b load_a load_b",
    ),
    _m(
        "product",
        "wait for too few groups",
        {"wait": "cp.async.wait_group 2;"},
        "race",
        "first_a next_a first_b next_b load_a load_b",
    ),
    _m(
        "product",
        "no commit of the first group",
        {"first_commit": ""},
        "race",
        "first_a next_a first_b next_b load_a load_b",
    ),
    _m(
        "product",
        "no barrier after the wait",
        {"ready": ""},
        "race",
        "first_a next_a first_b next_b load_a load_b",
    ),
    _m("product", "no barrier before reuse", {"free": ""}, "race", "next_a next_b load_a load_b"),
    _m(
        "product",
        "the next copy goes to the buffer in use",
        _edit("product", "parity", "and.b32 %r15, %r14, 1", "and.b32 %r15, %r12, 1"),
        "race uninitialized-read",
        "next_a next_b load_a load_b first_a first_b",
    ),
    _m(
        "product",
        "the other buffer is read",
        _edit("product", "buffer", "and.b32 %r16, %r12, 1", "and.b32 %r16, %r14, 1"),
        "race uninitialized-read",
        "next_a next_b load_a load_b",
    ),
    _m(
        "product",
        "B is never copied",
        {"first_b": "", "next_b": ""},
        "uninitialized-read",
        "load_b",
    ),
    _m(
        "product",
        "A past its end",
        _edit("product", "next_a", "[%rd6]", "[%rd6+4096]"),
        "out-of-bounds",
        "next_a",
    ),
    _m(
        "product",
        "one copy too many",
        _edit("product", "parity", "%r14, 4;", "%r14, 5;"),
        "out-of-bounds",
        "next_a next_b",
    ),
    _m(
        "product",
        "copy past shared memory",
        _edit("product", "next_a", "[%r22]", "[%r22+2048]"),
        "out-of-bounds",
        "next_a",
    ),
    _m(
        "product",
        "misaligned copy",
        _edit("product", "next_a", "[%r22]", "[%r22+8]"),
        "misaligned",
        "next_a",
    ),
    _m(
        "product",
        "store past the end",
        _edit("product", "store_high", "+256", "+1024"),
        "out-of-bounds",
        "store_high",
    ),
    # A ring with producer and consumers.
    _m(
        "ring",
        "consumer does not wait for the data",
        {"wait_full": ""},
        "race uninitialized-read",
        "load take",
    ),
    _m(
        "ring",
        "producer does not wait for the release",
        {"wait_empty": ""},
        "race barrier-overflow",
        "load take expect",
    ),
    _m("ring", "stage is never released", {"release": ""}, "deadlock", "wait_empty"),
    _m(
        "ring",
        "stage released before it is read",
        {
            "slot2": _text("ring", "release").replace("@%p5", "setp.eq.u32 %p5, %r6, 0; @%p5")
            + " "
            + _text("ring", "slot2"),
            "release": "",
        },
        "race",
        "load take",
    ),
    _m(
        "ring",
        "one arrival too many expected",
        {"init_empty0": "mbarrier.init.shared.b64 [%r4+16], 5;"},
        "deadlock",
        "wait_empty",
    ),
    _m(
        "ring",
        "one arrival too few expected",
        {
            "init_empty0": "mbarrier.init.shared.b64 [%r4+16], 3;",
            "init_empty1": "mbarrier.init.shared.b64 [%r4+24], 3;",
        },
        "race barrier-overflow deadlock",
        "load take release wait_empty",
    ),
    _m(
        "ring",
        "all lanes arrive",
        {"release": "mbarrier.arrive.shared.b64 _, [%r10+16];"},
        "barrier-overflow race",
        "release",
    ),
    _m(
        "ring",
        "wrong phase at the producer",
        _edit("ring", "empty_parity", "xor.b32 %r11, %r9, 1", "mov.u32 %r11, %r9"),
        "deadlock",
        "wait_empty wait_full",
    ),
    _m(
        "ring",
        "wrong phase at the consumer",
        _edit(
            "ring", "full_parity", "and.b32 %r9, %r9, 1", "and.b32 %r9, %r9, 1; xor.b32 %r9, %r9, 1"
        ),
        "race uninitialized-read deadlock",
        "load take wait_full wait_empty",
    ),
    _m(
        "ring",
        "16 bytes too many expected",
        _edit("ring", "expect", "512", "528"),
        "barrier-bytes deadlock",
        "wait_full expect init_full0",
    ),
    _m(
        "ring",
        "16 bytes too few expected",
        _edit("ring", "expect", "512", "496"),
        "barrier-bytes deadlock barrier-overflow",
        "wait_full expect init_full0 init_full1",
    ),
    _m(
        "ring",
        "no barrier after the initialization",
        {"init_barrier": ""},
        "barrier-unordered barrier-uninitialized",
        "wait_full wait_empty expect load release",
    ),
    _m(
        "ring",
        "no fence after the initialization",
        {"init_fence": ""},
        "missing-proxy-fence",
        "load init_full0 init_full1",
    ),
    _m(
        "ring",
        "a barrier is not initialized",
        {"init_full1": ""},
        "barrier-uninitialized",
        "expect load wait_full",
    ),
    _m(
        "ring",
        "a barrier is initialized twice",
        {"init_empty1": _text("ring", "init_empty1") + " mbarrier.init.shared.b64 [%r4], 1;"},
        "barrier-reinitialized",
        "init_full0 init_empty1",
    ),
    _m(
        "ring",
        "box at a misaligned address",
        _edit(
            "ring",
            "slot",
            "add.u32 %r12, %r12, %r3;",
            "add.u32 %r12, %r12, %r3; add.u32 %r12, %r12, 64;",
        ),
        "misaligned",
        "load",
    ),
    _m(
        "ring",
        "stages overlap",
        _edit("ring", "slot", "shl.b32 %r12, %r8, 9", "shl.b32 %r12, %r8, 8"),
        "race uninitialized-read",
        "load take",
    ),
    _m(
        "ring",
        "the producer sends one tile too few",
        _edit(
            "ring",
            "produced",
            "setp.lt.u32 %p4, %r7, %r1",
            "add.u32 %r20, %r7, 1; setp.lt.u32 %p4, %r20, %r1",
        ),
        "deadlock",
        "wait_full",
    ),
    _m(
        "ring",
        "the load is left out",
        {"load": ""},
        "barrier-bytes deadlock",
        "wait_full expect init_full0",
    ),
    # wgmma.
    _m(
        "gemm",
        "consumer does not wait for the data",
        {"wait_full": ""},
        "race uninitialized-read",
        "load_a load_b wgmma",
    ),
    _m(
        "gemm",
        "producer does not wait for the release",
        {"wait_empty": ""},
        "race barrier-overflow",
        "load_a load_b wgmma expect",
    ),
    _m(
        "gemm",
        "released before wgmma has read",
        {
            "group": _text("gemm", "group")
            + " setp.eq.u32 %p5, %r6, 0; @%p5 mbarrier.arrive.shared.b64 _, [%r10+16];",
            "release": "",
        },
        "race",
        "load_a load_b wgmma",
    ),
    _m(
        "gemm",
        "one group may stay in flight",
        {"wait_group": "wgmma.wait_group.sync.aligned 1;"},
        "race pending-accumulator",
        "load_a load_b wgmma convert",
    ),
    _m(
        "gemm",
        "no wait for wgmma",
        {"wait_group": ""},
        "race pending-accumulator",
        "load_a load_b wgmma convert",
    ),
    _m(
        "gemm",
        "no commit",
        {"group": ""},
        "race pending-accumulator",
        "load_a load_b wgmma convert",
    ),
    _m(
        "gemm",
        "accumulator touched without wgmma.fence",
        {"fence": "add.f32 %f0, %f0, 0f00000000;"},
        "missing-wgmma-fence",
        "fence wgmma",
    ),
    _m("gemm", "no wgmma.fence at all", {"fence": ""}, "missing-wgmma-fence", "wgmma"),
    _m("gemm", "no proxy fence before the store", {"proxy": ""}, "missing-proxy-fence", "put out"),
    _m(
        "gemm", "no barrier before the store", {"stored": ""}, "race missing-proxy-fence", "put out"
    ),
    _m(
        "gemm",
        "fence after the barrier, by another warp",
        {"proxy": "bar.sync 1, 128;", "stored": "fence.proxy.async.shared::cta;"},
        "missing-proxy-fence",
        "put out",
        True,
    ),
    _m(
        "gemm",
        "output buffer reused before the main loop has drained",
        {"drained": ""},
        "race",
        "put wgmma",
        True,
    ),
    _m(
        "gemm",
        "B is never loaded",
        {"load_b": "", "expect": _text("gemm", "expect").replace("16384", "8192")},
        "uninitialized-read",
        "wgmma",
    ),
    _m(
        "gemm",
        "expected bytes forget B",
        _edit("gemm", "expect", "16384", "8192"),
        "barrier-bytes deadlock race barrier-overflow",
        "wait_full expect load_b wgmma init_full",
    ),
    _m(
        "gemm",
        "descriptor of a stage that does not exist",
        _edit(
            "gemm",
            "descriptor",
            "or.b64 %rd10, %rd10,",
            "add.u64 %rd10, %rd10, 4096; or.b64 %rd10, %rd10,",
        ),
        "out-of-bounds",
        "wgmma",
    ),
    _m(
        "gemm",
        "descriptor off its swizzle pattern",
        _edit(
            "gemm",
            "descriptor",
            "or.b64 %rd10, %rd10,",
            "add.u64 %rd10, %rd10, 8; or.b64 %rd10, %rd10,",
        ),
        "race",
        "wgmma",
    ),
    _m(
        "gemm",
        "wrong stride in the descriptor",
        _edit("gemm", "descriptor", "0x4000004000010000", "0x4000008000010000"),
        "out-of-bounds uninitialized-read race",
        "wgmma load_b load_a",
    ),
    _m(
        "gemm",
        "stage one too few arrivals",
        _edit("gemm", "init_empty", "[%r4+16], 4;", "[%r4+16], 3;"),
        "race barrier-overflow",
        "load_a load_b wgmma release",
    ),
    _m(
        "gemm",
        "store without waiting for its read",
        {"out_wait": ""},
        "left-pending",
        "out out_wait",
        True,
    ),
    # A cluster.
    _m(
        "pair",
        "no cluster barrier after the initialization",
        {"arrive_init": "", "wait_init": ""},
        "barrier-unordered barrier-uninitialized",
        "load wait_full init",
    ),
    _m(
        "pair",
        "no cluster barrier after sending",
        {"arrive_sent": "", "wait_sent": ""},
        "race uninitialized-read",
        "send receive",
    ),
    _m(
        "pair",
        "relaxed arrival after sending",
        {"arrive_sent": "barrier.cluster.arrive.relaxed;"},
        "race",
        "send receive",
    ),
    _m(
        "pair",
        "sent to the next slot",
        _edit("pair", "send", "[%r12]", "[%r12+4]"),
        "uninitialized-read",
        "receive",
    ),
    _m(
        "pair",
        "multicast to one CTA only",
        _edit("pair", "mask", "mov.u16 %h1, 3", "mov.u16 %h1, 1"),
        "deadlock barrier-bytes",
        "wait_full init expect",
    ),
    _m(
        "pair",
        "weights read without a wait",
        {"wait_full": ""},
        "race uninitialized-read",
        "load weight",
    ),
    _m(
        "pair",
        "too many bytes expected",
        _edit("pair", "expect", "256", "512"),
        "deadlock barrier-bytes",
        "wait_full init expect",
    ),
    _m(
        "pair",
        "an arrival forgotten",
        {"arrive_sent": _text("pair", "arrive_sent").replace("barrier", "@%p1 barrier")},
        "deadlock race",
        "wait_sent arrive_sent",
    ),
    _m(
        "pair",
        "sent past the inbox's CTA",
        _edit(
            "pair",
            "peer",
            "add.u32 %r10, %r5, %r9",
            "add.u32 %r10, %r5, %r9; add.u32 %r10, %r10, 4096",
        ),
        "out-of-bounds",
        "send receive",
    ),
    # CTAs and global memory.
    _m(
        "split",
        "every CTA is the last",
        _edit("split", "last", "setp.ne.u32 %p2, %r6, 3", "setp.ne.u32 %p2, %r6, %r6"),
        "global-race",
        "partial read_low read_high store",
    ),
    _m(
        "split",
        "the first adds up",
        _edit("split", "last", "setp.ne.u32 %p2, %r6, 3", "setp.ne.u32 %p2, %r6, 0"),
        "global-race",
        "partial read_low read_high",
    ),
    _m(
        "split",
        "a plain counter",
        {"ask": "ld.global.u32 %r5, [%rd3]; add.u32 %r7, %r5, 1; st.global.u32 [%rd3], %r7;"},
        "global-race",
        "ask partial read_low read_high",
    ),
    _m(
        "split",
        "the answer is read without a barrier",
        {"told": ""},
        "race uninitialized-read",
        "tell last",
    ),
    _m(
        "split",
        "no fence before the atomic",
        {"publish": ""},
        "global-race",
        "partial read_low read_high",
        True,
    ),
    _m(
        "split",
        "no fence after the atomic",
        {"acquire": ""},
        "global-race",
        "partial read_low read_high",
        True,
    ),
    _m(
        "split",
        "all write the first part",
        _edit("split", "partial", "[%rd7]", "[%rd2]"),
        "global-race",
        "partial",
    ),
    _m(
        "split",
        "work space too small",
        _edit("split", "read_high", "+768", "+1024"),
        "out-of-bounds",
        "read_high",
    ),
]
