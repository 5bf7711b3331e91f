# ruff: noqa: E501  # A PTX statement stays on its line.
"""Small kernels of asynchronous operations, each beside the same without one of its waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mla_var3.emulator.clusters import Launch
from mla_var3.emulator.launcher import launch
from mla_var3.emulator.options import Options
from mla_var3.emulator.regions import Region

REGISTERS = (
    ".reg .pred %p<16>; .reg .b16 %h<8>; .reg .b32 %r<64>; .reg .f32 %f<32>; .reg .b64 %rd<32>;"
)
WAIT = "{{ .reg .pred P; W: mbarrier.try_wait.parity.shared::cta.b64 P, [{barrier}], {parity}; @P bra D; bra W; D: }}"


def wait(barrier: str, parity: str = "0") -> str:
    """A loop that waits for a phase."""
    return WAIT.format(barrier=barrier, parity=parity)


@dataclass(frozen=True)
class Snippet:
    """A kernel of pointers; a line that begins with ``name:`` in ``steps`` can be left out.

    Attributes:
        steps: Lines of PTX by name, in order.
        words: 32-bit words of each array that a parameter points to.
        shared: Declarations of shared memory.
        block: Threads per CTA.
        grid: CTAs.
        cluster: CTAs of a cluster.
    """

    steps: dict[str, str]
    words: Sequence[int] = (256, 256)
    shared: str = ".shared .align 128 .b8 a[2048]; .shared .align 8 .b8 bars[64];"
    block: int = 64
    grid: int = 1
    cluster: int = 1
    regions: Sequence[Region] = field(default=())

    def line(self, step: str) -> int:
        """The line of a step, as reports name it."""
        return list(self.steps).index(step) + 1

    def text(self, edits: dict[str, str] | None = None) -> str:
        """The PTX, some steps replaced (empty: left out)."""
        assert set(edits or {}) <= set(self.steps)
        lines = []
        for number, (name, step) in enumerate(self.steps.items(), 1):
            lines += [f".loc 1 {number} 0", (edits or {}).get(name, step)]
        names = [f"x{i}" for i in range(len(self.words))]
        parameters = ", ".join(f".param .u64 {n}" for n in names)
        loads = " ".join(f"ld.param.u64 %rd{i}, [{n}];" for i, n in enumerate(names))
        body = "\n".join(lines)
        return (
            ".version 8.6\n.target sm_90a\n.address_size 64\n"
            f".visible .entry k({parameters})\n{{\n{REGISTERS}\n{self.shared}\n"
            f"{loads} mov.u32 %r1, %tid.x;\n{body}\nret;\n}}\n"
            '.file 1 "kernel.py"\n'
        )

    def run(
        self, edits: dict[str, str] | None = None, options: Options | None = None
    ) -> tuple[list[Any], Launch]:
        """Arrays after a run, and what it gave."""
        arrays = [np.arange(n, dtype=np.uint32) + 1000 * i for i, n in enumerate(self.words)]
        done = launch(
            self.text(edits), arrays, self.grid, self.block, cluster=self.cluster, options=options
        )
        return arrays, done


INIT = (
    "setp.ne.u32 %p1, %r1, 0; mov.u32 %r2, a; mov.u32 %r3, bars; @%p1 bra READY; "
    "mbarrier.init.shared.b64 [%r3], 1; mbarrier.init.shared.b64 [%r3+8], 1; "
    "fence.mbarrier_init.release.cluster; READY: bar.sync 0;"
)
COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"

#: Two loads, each with its own mbarrier.
TWO_LOADS = Snippet(
    {
        "init": INIT + " @%p1 bra LOADED;",
        "first": f"mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 256; {COPY} [%r2], [%rd0], 256, [%r3];",
        "second": f"mbarrier.arrive.expect_tx.shared.b64 _, [%r3+8], 256; {COPY} [%r2+256], [%rd0+256], 256, [%r3+8];",
        "loaded": "LOADED:",
        "wait_first": wait("%r3"),
        "wait_second": wait("%r3+8"),
        "take": "shl.b32 %r4, %r1, 2; add.u32 %r5, %r2, %r4; ld.shared.u32 %r6, [%r5];",
        "take_second": "ld.shared.u32 %r7, [%r5+256];",
        "give": "cvt.u64.u32 %rd3, %r4; add.u64 %rd4, %rd1, %rd3; add.u32 %r6, %r6, %r7; st.global.u32 [%rd4], %r6;",
    }
)

OUT = "cp.async.bulk.global.shared::cta.bulk_group"
_FILL = "shl.b32 %r4, %r1, 2; add.u32 %r5, %r2, %r4; st.shared.u32 [%r5], %r1; st.shared.u32 [%r5+256], %r1;"

#: Two buffers, two stores in two groups, and each buffer is filled again.
TWO_STORES = Snippet(
    {
        "start": "mov.u32 %r2, a; setp.ne.u32 %p1, %r1, 0;",
        "fill": _FILL + " fence.proxy.async.shared::cta; bar.sync 0;",
        "skip": "@%p1 bra STORED;",
        "store_first": f"{OUT} [%rd0], [%r2], 256;",
        "commit_first": "cp.async.bulk.commit_group;",
        "store_second": f"{OUT} [%rd0+256], [%r2+256], 256;",
        "commit_second": "cp.async.bulk.commit_group;",
        "wait_first": "cp.async.bulk.wait_group.read 1;",
        "stored": "STORED: bar.sync 0;",
        "again_first": "st.shared.u32 [%r5], 7;",
        "wait_second": "@!%p1 cp.async.bulk.wait_group.read 0;",
        "read": "bar.sync 0;",
        "again_second": "st.shared.u32 [%r5+256], 7;",
    },
    words=(128,),
)

_SPIN = "SPIN: ld.acquire.gpu.global.u32 %r8, [%rd1]; setp.ne.u32 %p3, %r8, 7; @%p3 bra SPIN;"

#: A CTA stores by TMA and raises a flag; another waits for the flag and reads.
STORE_AND_FLAG = Snippet(
    {
        "start": "mov.u32 %r2, a; setp.ne.u32 %p1, %r1, 0; mov.u32 %r9, %ctaid.x; setp.ne.u32 %p2, %r9, 0; @%p2 bra TAKE;",
        "fill": _FILL + " fence.proxy.async.shared::cta; bar.sync 0; @%p1 bra END;",
        "store": f"{OUT} [%rd0], [%r2], 256; cp.async.bulk.commit_group;",
        "complete": "cp.async.bulk.wait_group 0;",
        "flag": "st.release.gpu.global.u32 [%rd1], 7; bra END;",
        "spin": "TAKE: @%p1 bra END; " + _SPIN,
        "take": "ld.global.u32 %r10, [%rd0];",
        "end": "END:",
    },
    words=(64, 1),
    grid=2,
)

#: A warp writes global memory that another reads after a barrier.
THROUGH_GLOBAL = Snippet(
    {
        "start": "setp.gt.u32 %p1, %r1, 31; mov.u32 %r2, a; @%p1 bra WRITTEN;",
        "write": "st.global.u32 [%rd0], 5;",
        "written": "WRITTEN:",
        "barrier": "bar.sync 0;",
        "read": "@%p1 ld.global.u32 %r4, [%rd0]; @%p1 st.global.u32 [%rd1], %r4;",
    },
)

#: A thread writes global memory and loads it by TMA.
WRITTEN_THEN_LOADED = Snippet(
    {
        "init": INIT + " @%p1 bra END;",
        "write": "st.global.u32 [%rd0], 5;",
        "fence": "fence.proxy.async.global;",
        "load": f"mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 256; {COPY} [%r2], [%rd0], 256, [%r3];",
        "wait": wait("%r3"),
        "end": "END:",
    },
)

_MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"

#: Two CTAs of a cluster that read each other's shared memory.
PEERS = Snippet(
    {
        "own": "mov.u32 %r2, a; shl.b32 %r4, %r1, 2; add.u32 %r5, %r2, %r4; st.shared.u32 [%r5], %r1;",
        "meet": _MEET,
        "peer": "mov.u32 %r7, %cluster_ctarank; xor.b32 %r8, %r7, 1; mapa.shared::cluster.u32 %r9, %r5, %r8;",
        "take": "ld.shared::cluster.u32 %r6, [%r9];",
        "part": _MEET,
        "give": "cvt.u64.u32 %rd3, %r4; add.u64 %rd4, %rd1, %rd3; setp.eq.u32 %p2, %r7, 0; @%p2 st.global.u32 [%rd4], %r6;",
    },
    grid=2,
    cluster=2,
)

#: Two CTAs of a cluster write each other's shared memory, and each stores its own by TMA.
FILLED_BY_PEERS = Snippet(
    {
        "address": "mov.u32 %r2, a; shl.b32 %r4, %r1, 2; add.u32 %r5, %r2, %r4; mov.u32 %r7, %cluster_ctarank;",
        "begin": _MEET,
        "peer": "xor.b32 %r8, %r7, 1; mapa.shared::cluster.u32 %r9, %r5, %r8;",
        "write": "st.shared::cluster.u32 [%r9], %r1;",
        "fence": "fence.proxy.async.shared::cluster;",
        "meet": _MEET,
        "late": "",
        "who": "mul.wide.u32 %rd3, %r7, 256; add.u64 %rd4, %rd0, %rd3; setp.ne.u32 %p1, %r1, 0; @%p1 bra END;",
        "store": f"{OUT} [%rd4], [%r2], 256; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
        "end": "END:",
    },
    words=(128,),
    grid=2,
    cluster=2,
)

#: The second CTA says to the first that it is done with something; the first waits for that.
RELEASE = Snippet(
    {
        "init": INIT,
        "meet": _MEET,
        "who": "mov.u32 %r7, %cluster_ctarank; setp.ne.u32 %p2, %r7, 0; @!%p2 bra MINE;",
        "arrive": "mapa.shared::cluster.u32 %r9, %r3, 0; @!%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r9];",
        "over": "bra END; MINE:",
        "wait": wait("%r3"),
        "end": "END:",
    },
    grid=2,
    cluster=2,
)

#: A kernel that reads what the one before it has written, and writes over what that has read.
NEXT_GRID = Snippet(
    {
        "address": "mov.u32 %r9, %ctaid.x; mad.lo.u32 %r1, %r9, 64, %r1; shl.b32 %r4, %r1, 2; cvt.u64.u32 %rd3, %r4; add.u64 %rd4, %rd0, %rd3; add.u64 %rd5, %rd1, %rd3;",
        "early": "",
        "wait": "griddepcontrol.wait;",
        "read": "ld.global.u32 %r6, [%rd4];",
        "write": "add.u32 %r6, %r6, 1; st.global.u32 [%rd5], %r6;",
        "next": "griddepcontrol.launch_dependents;",
    },
    grid=2,
)
