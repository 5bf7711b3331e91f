# ruff: noqa: E501  # A PTX statement stays on its line.
"""Every special register of every thread of a grid of clusters, and addresses within a cluster."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from mla_var3.emulator import launch
from mla_var3.emulator.options import Options
from mla_var3.emulator.units.budgets import FILE

GRID, BLOCK, CLUSTERS = (4, 6, 2), (5, 4, 3), [(2, 3, 1), (2, 1, 2), (1, 2, 2)]
AXES = "xyz"
THREADS = BLOCK[0] * BLOCK[1] * BLOCK[2]
SHARED = 48


def expected(
    cluster: tuple[int, ...], block: tuple[int, ...], thread: tuple[int, ...]
) -> dict[str, int]:
    """Registers of a thread, by the places of it and of its CTA, x first."""
    flat = thread[0] + BLOCK[0] * (thread[1] + BLOCK[1] * thread[2])
    lane = flat % 32
    own = tuple(b % c for b, c in zip(block, cluster, strict=True))
    x, y, z = (b // c for b, c in zip(block, cluster, strict=True))
    nx, ny = GRID[0] // cluster[0], GRID[1] // cluster[1]
    rank = own[0] + cluster[0] * (own[1] + cluster[1] * own[2])
    sm = ((x + nx * (y + ny * z)) * math.prod(cluster) + rank) % 132
    told = {
        "%laneid": lane, "%warpid": flat // 32, "%nwarpid": -(-THREADS // 32), "%smid": sm, "%nsmid": 132,
        "%dynamic_smem_size": SHARED, "%is_explicit_cluster": 1, "%cluster_nctarank": math.prod(cluster), "%gridid": 0,
        "%cluster_ctarank": rank, "%clock": 0, "%clock_hi": 0, "%globaltimer_lo": 0,
        "%total_smem_size": 1024 + SHARED,
        "%lanemask_eq": 1 << lane, "%lanemask_le": (2 << lane) - 1, "%lanemask_lt": (1 << lane) - 1,
        "%lanemask_ge": (1 << 32) - (1 << lane), "%lanemask_gt": (1 << 32) - (2 << lane),
    }  # fmt: skip
    for i, axis in enumerate(AXES):
        told |= {
            f"%tid.{axis}": thread[i], f"%ntid.{axis}": BLOCK[i], f"%ctaid.{axis}": block[i],
            f"%nctaid.{axis}": GRID[i], f"%clusterid.{axis}": block[i] // cluster[i],
            f"%nclusterid.{axis}": GRID[i] // cluster[i], f"%cluster_ctaid.{axis}": own[i],
            f"%cluster_nctaid.{axis}": cluster[i],
        }  # fmt: skip
    return told


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_special_registers(cluster: tuple[int, int, int]) -> None:
    names = list(expected(CLUSTERS[0], (0, 0, 0), (0, 0, 0)))
    count = GRID[0] * GRID[1] * GRID[2] * THREADS
    out = np.zeros((count, len(names)), np.uint32)
    stores = "".join(
        f"mov.u32 %r4, {name}; st.global.u32 [%d0+{4 * i}], %r4;\n" for i, name in enumerate(names)
    )
    text = f"""
.version 8.8\n.target sm_90a\n.address_size 64
.visible .entry k(.param .u64 o)
{{
.reg .b32 %r<9>; .reg .b64 %d<3>;
ld.param.u64 %d0, [o];
mov.u32 %r0, %ctaid.z; mov.u32 %r1, %nctaid.y; mov.u32 %r2, %ctaid.y; mad.lo.u32 %r0, %r0, %r1, %r2;
mov.u32 %r1, %nctaid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r0, %r0, %r1, %r2;
mov.u32 %r1, %ntid.z; mov.u32 %r2, %tid.z; mad.lo.u32 %r0, %r0, %r1, %r2;
mov.u32 %r1, %ntid.y; mov.u32 %r2, %tid.y; mad.lo.u32 %r0, %r0, %r1, %r2;
mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r0, %r0, %r1, %r2;
mad.wide.u32 %d0, %r0, {4 * len(names)}, %d0;
{stores}ret;
}}
"""
    options = Options(multiprocessors=132)
    done = launch(text, [out], GRID, BLOCK, cluster=cluster, shared=SHARED, options=options)
    assert not done.diagnostics
    places = itertools.product(*map(range, (*GRID[::-1], *BLOCK[::-1])))
    for row, (z, y, x, tz, ty, tx) in zip(out.tolist(), places, strict=True):
        assert dict(zip(names, row, strict=True)) == expected(cluster, (x, y, z), (tx, ty, tz))


def test_addresses_in_a_cluster() -> None:
    out = np.zeros((2, 32, 4), np.uint32)
    text = """
.version 8.8\n.target sm_90a\n.address_size 64
.visible .entry k(.param .u64 o)
{
.reg .b32 %r<19>; .reg .b64 %d<9>; .shared .align 8 .b8 s[256];
ld.param.u64 %d0, [o]; mov.u32 %r0, %tid.x; mov.u32 %r1, %cluster_ctarank; mad.lo.u32 %r2, %r1, 32, %r0; mad.wide.u32 %d0, %r2, 16, %d0;
mov.u32 %r3, s; mad.lo.u32 %r3, %r0, 4, %r3; mad.lo.u32 %r4, %r1, 1000, %r0; st.shared.u32 [%r3], %r4;
barrier.cluster.arrive; barrier.cluster.wait;
xor.b32 %r5, %r1, 1; mapa.shared::cluster.u32 %r6, %r3, %r5; ld.shared::cluster.u32 %r7, [%r6]; getctarank.shared::cluster.u32 %r8, %r6;
cvt.u64.u32 %d1, %r3; cvta.shared.u64 %d1, %d1; mapa.u64 %d2, %d1, %r5; ld.u32 %r9, [%d2]; getctarank.u64 %r10, %d2;
st.global.v4.u32 [%d0], {%r7, %r8, %r9, %r10};
barrier.cluster.arrive; barrier.cluster.wait; ret;
}
"""
    assert not launch(text, [out], 2, 32, cluster=2).diagnostics
    for cta, lane in np.ndindex(2, 32):
        there = 1 - cta
        assert out[cta, lane].tolist() == [there * 1000 + lane, there, there * 1000 + lane, there]


@pytest.mark.parametrize(("more", "kinds"), [(0, []), (8, ["register-budget"])])
def test_a_file_of_registers_may_be_full_and_not_fuller(more: int, kinds: list[str]) -> None:
    threads, each = 512, FILE // 512
    count = each + more
    text = f"""
.version 8.8\n.target sm_90a\n.address_size 64\n.visible .entry k()\n.reqntid {threads}, 1, 1
{{
setmaxnreg.{"inc" if more else "dec"}.sync.aligned.u32 {count};
ret;
}}
"""
    found = launch(text, [], 1, threads).diagnostics
    assert [d.kind for d in found] == kinds


@pytest.mark.parametrize("threads", [1, 31, 32, 33, 64, 65, 97])
def test_a_last_warp_may_lack_lanes(threads: int) -> None:
    out = np.zeros((2, threads, 4), np.uint32)
    text = """
.version 8.8\n.target sm_90a\n.address_size 64
.visible .entry k(.param .u64 o)
{
.reg .b32 %r<19>; .reg .b64 %d<9>; .reg .pred %p<2>;
ld.param.u64 %d0, [o]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r2, %r1, %r2, %r0; mad.wide.u32 %d0, %r2, 16, %d0;
mov.u32 %r3, %warpid; mov.u32 %r4, %nwarpid; mov.u32 %r5, %laneid; bar.sync 0; vote.sync.ballot.b32 %r6, 1, -1;
st.global.v4.u32 [%d0], {%r3, %r4, %r5, %r6}; ret;
}
"""
    done = launch(
        text.replace("vote.sync.ballot.b32 %r6, 1, -1;", "mov.u32 %r6, %lanemask_le;"),
        [out],
        2,
        threads,
    )
    assert done.diagnostics == []
    for _, t in np.ndindex(2, threads):
        lane = t % 32
        wanted = [t // 32, -(-threads // 32), lane, (2 << lane) - 1]
        assert out[0, t].tolist() == out[1, t].tolist() == wanted
