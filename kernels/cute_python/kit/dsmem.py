"""Merge of two CTAs of a cluster that hold partial outputs of the same rows, through DSMEM.

A CTA writes the half of its output that it does not keep to shared memory of the other: whole, to
an inbox, or in pieces whose bytes a barrier of the other CTA counts.
"""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Float32, Int32, range_constexpr

from mla_var3.kernel.cute_python.kit.pieces import own_quads
from mla_var3.kernel.cute_python.kit.slabs import HALF, ROWS


def inbox(memory):
    """Shared memory that the peer CTA writes: half an output, 64 maxima and 64 sums, all fp32.

    Each thread finds its own 128 values as 32 groups of four, so that a warp moves 512 bytes.
    """
    values = cute.recast_ptr(memory.data_ptr(), dtype=Float32)
    maxima = values + ROWS * HALF
    return values + cute.arch.thread_idx()[0] % 128 * 4, maxima, maxima + ROWS


@cute.jit
def send_half(memory, peer, out, row_max, row_sum, row, lane):
    """Write a warpgroup's half of the output to the inbox of CTA ``peer``."""
    values, maxima, sums = inbox(memory)
    target = remote_address(values, peer)
    for j in range_constexpr(32):
        store_remote(target + j * 2048, *[out[4 * j + i] for i in range(4)])
    if lane % 4 == 0:
        for r in range_constexpr(2):
            store_remote(remote_address(maxima + row + 8 * r, peer), row_max[r])
            store_remote(remote_address(sums + row + 8 * r, peer), row_sum[r])


@cute.jit
def add_half(memory, out, row_max, row_sum, row):
    """Merge what the peer has sent into the same half of this CTA's output."""
    values, maxima, sums = inbox(memory)
    mine, theirs = cute.make_rmem_tensor(2, Float32), cute.make_rmem_tensor(2, Float32)
    for r in range_constexpr(2):
        peer_max = cute.make_tensor(maxima, cute.make_layout(ROWS))[row + 8 * r]
        peer_sum = cute.make_tensor(sums, cute.make_layout(ROWS))[row + 8 * r]
        new = cute.arch.fmax(row_max[r], peer_max)
        mine[r] = cute.math.exp2(row_max[r] - new, fastmath=True)
        theirs[r] = cute.math.exp2(peer_max - new, fastmath=True)
        row_sum[r] = row_sum[r] * mine[r] + peer_sum * theirs[r]
        row_max[r] = new
    quads = cute.make_tensor(values, cute.make_layout((4, 32), stride=(1, 512)))
    quad = cute.make_rmem_tensor(4, Float32)
    for j in range_constexpr(32):
        cute.autovec_copy(quads[None, j], quad)
        for i in range_constexpr(4):
            out[4 * j + i] = out[4 * j + i] * mine[i // 2] + quad[i] * theirs[i // 2]


def remote_address(pointer, rank):
    """Address of ``pointer``'s place in the shared memory of CTA ``rank`` of the cluster."""
    return cute.arch.inline_ptx(
        "mapa.shared::cluster.u32 {$w0}, {$r0}, {$r1};",
        write_only_types=[Int32],
        read_only_args=[Int32(pointer.toint()), rank],
    )


def store_remote(address, *values):
    """Store one or four fp32 values in another CTA's shared memory."""
    many, operands = (".v4", "{{$r1}, {$r2}, {$r3}, {$r4}}") if len(values) == 4 else ("", "{$r1}")
    cute.arch.inline_ptx(
        f"st.shared::cluster{many}.f32 [{{$r0}}], {operands};", read_only_args=[address, *values]
    )


@cute.jit
def send_pieces(storage, peer, out, row_max, row_sum, row, lane):
    """Write a warpgroup's half of the output where the queries of CTA ``peer`` were.

    Each piece counts its bytes on a barrier there, the first also maxima and sums.
    """
    barriers = remote_address(storage.pieces.data_ptr(), peer)
    numbers = storage.peer.data_ptr()
    if lane % 4 == 0:
        for r in range_constexpr(2):
            at = numbers + row + 8 * r
            store_counted(remote_address(at, peer), barriers, row_max[r])
            store_counted(remote_address(at + ROWS, peer), barriers, row_sum[r])
    target = remote_address(own_quads(storage), peer)
    for j in range_constexpr(32):
        quad = [out[4 * j + i] for i in range(4)]
        store_counted(target + j * 2048, barriers + j // 8 * 8, *quad)


def store_counted(address, barrier, *values):
    """Store one or four fp32 values in another CTA, whose ``barrier`` counts their bytes."""
    many, operands = (".v4", "{{$r2}, {$r3}, {$r4}, {$r5}}") if len(values) == 4 else ("", "{$r2}")
    cute.arch.inline_ptx(
        f"st.async.shared::cluster.mbarrier::complete_tx::bytes{many}.f32 "
        f"[{{$r0}}], {operands}, [{{$r1}}];",
        read_only_args=[address, barrier, *values],
    )
