"""Where a thread finds the 64-column pieces of a peer's partial output: in the queries' place."""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Float32

from mla_var3.kernel.cute_python.kit.slabs import ROWS, SLAB

#: Pieces of a half, 64 rows of fp32 each.
PIECES, PIECE_BYTES = 4, ROWS * SLAB * 4


def received(storage, piece):
    """What the peer sent of a piece to this thread's place: [4, 8] fp32."""
    return cute.make_tensor(
        own_quads(storage) + piece * ROWS * SLAB, cute.make_layout((4, 8), stride=(1, 512))
    )


def own_quads(storage):
    """The first four of a thread's values among the queries; the next ones are 2,048 bytes on."""
    values = cute.recast_ptr(storage.q.data_ptr(), dtype=Float32)
    return values + cute.arch.thread_idx()[0] % 128 * 4
