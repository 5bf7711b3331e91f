"""Halves of a merge that arrive in pieces, each with a barrier that counts its bytes."""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Float32, range_constexpr

from mla_var3.kernel.cute_python.mla.flash_mla.common import ROWS, SLAB, remote_address

#: A half of the output in pieces of 64 columns, 64 rows each, fp32.
PIECES, PIECE_BYTES = 4, ROWS * SLAB * 4


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


def received(storage, piece):
    """What the peer sent of a piece to this thread's place: [4, 8] fp32."""
    return cute.make_tensor(
        own_quads(storage) + piece * ROWS * SLAB, cute.make_layout((4, 8), stride=(1, 512))
    )


def own_quads(storage):
    """The first four of a thread's values among the queries; the next ones are 2,048 bytes on."""
    values = cute.recast_ptr(storage.q.data_ptr(), dtype=Float32)
    return values + cute.arch.thread_idx()[0] % 128 * 4


def store_counted(address, barrier, *values):
    """Store one or four fp32 values in another CTA, whose ``barrier`` counts their bytes."""
    many, operands = (".v4", "{{$r2}, {$r3}, {$r4}, {$r5}}") if len(values) == 4 else ("", "{$r2}")
    cute.arch.inline_ptx(
        f"st.async.shared::cluster.mbarrier::complete_tx::bytes{many}.f32 "
        f"[{{$r0}}], {operands}, [{{$r1}}];",
        read_only_args=[address, barrier, *values],
    )
