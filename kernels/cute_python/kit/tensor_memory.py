"""Tensor memory: columns of 32 bits in 128 lanes, of which each thread of four warps has one.

A product writes its accumulator there, and takes weights from there. Warps move columns to and from
registers: thread i reads and writes lane i, so that a thread has a row to itself.
"""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Float32
from cutlass._mlir.dialects import nvvm
from cutlass.cute.nvgpu import tcgen05
from cutlass.cutlass_dsl import dsl_user_op

#: Lanes, and columns of all of them; an address counts lanes from bit 16 on.
LANES, ALL_COLUMNS, LANE = 128, 512, 1 << 16


def columns(base, first, count):
    """Columns of fp32 as [128, count]; ``base`` is the address of the allocation."""
    return cute.make_tensor(base + first, cute.make_layout((LANES, count), stride=(LANE, 1)))


def load_lane(source):
    """This thread's lane of ``source`` [128, n]; it has been read when this is over."""
    count = source.shape[1]
    atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition(count)), Float32)
    copy, part = _mine(atom, source)
    shape = part.partition_D(cute.make_identity_tensor(source.shape)).shape
    values = cute.make_rmem_tensor(shape, Float32)
    cute.copy(copy, part.partition_S(source), values)
    cute.arch.fence_view_async_tmem_load()
    return cute.make_tensor(values.iterator, cute.make_layout(count))


def store_lane(values, target):
    """``values`` [n] of 32 bits to this thread's lane of ``target`` [128, n]."""
    count = target.shape[1]
    atom = cute.make_copy_atom(tcgen05.St32x32bOp(tcgen05.Repetition(count)), Float32)
    copy, part = _mine(atom, target)
    shape = part.partition_S(cute.make_identity_tensor(target.shape)).shape
    source = cute.make_tensor(values.iterator, cute.make_layout(shape))
    cute.copy(copy, source, part.partition_D(target))


def _mine(atom, tensor):
    copy = tcgen05.make_tmem_copy(atom, tensor)
    return copy, copy.get_slice(cute.arch.thread_idx()[0] % LANES)


def stored():
    """Wait until this warp's stores are in tensor memory."""
    cute.arch.fence_view_async_tmem_store()


@dsl_user_op
def before_sync(*, loc=None, ip=None):
    """What this thread did in tensor memory comes before the barrier that it arrives at next."""
    nvvm.tcgen05_fence(nvvm.Tcgen05FenceKind.BEFORE_THREAD_SYNC, loc=loc, ip=ip)


@dsl_user_op
def after_sync(*, loc=None, ip=None):
    """What this thread does there comes after the barrier that it has waited for."""
    nvvm.tcgen05_fence(nvvm.Tcgen05FenceKind.AFTER_THREAD_SYNC, loc=loc, ip=ip)
