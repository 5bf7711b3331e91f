"""Exchange of fp32 values through L2 without flags: a sentinel marks what is not written yet.

A place that nobody has written holds ``EMPTY``, a NaN that ``put`` never writes. Its reader, one
CTA, polls until it holds another value, and leaves it empty again for the next launch. Each word is
ordered for itself alone: no other write is known to be there because this one is.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32

#: Bits of an empty word, and of the NaN that is written for a NaN of the same bits.
EMPTY, NAN = -1, 0x7FFFFFFF


@cute.jit
def put(at, values):
    """Write two or four fp32 values, each visible to the GPU by itself."""
    words = cute.recast_tensor(values, Int32)
    store(at, [NAN if words[i] == EMPTY else words[i] for i in range(cute.size(words))])


def clear(at, count):
    """Leave two or four words empty."""
    store(at, [Int32(EMPTY)] * count)


def store(at, words):
    """Write two or four words."""
    names = ", ".join(f"{{$r{i + 1}}}" for i in range(len(words)))
    cute.arch.inline_ptx(
        f"st.relaxed.gpu.global.v{len(words)}.b32 [{{$r0}}], {{{names}}};",
        read_only_args=[Int64(at.toint()), *words],
    )


def get(at, words):
    """Read two or four words into registers, empty or not."""
    count = cute.size(words)
    names = ", ".join(f"{{$w{i}}}" for i in range(count))
    found = cute.arch.inline_ptx(
        f"ld.relaxed.gpu.global.v{count}.b32 {{{names}}}, [{{$r0}}];",
        write_only_types=[Int32] * count,
        read_only_args=[Int64(at.toint())],
    )
    for i in range(count):
        words[i] = found[i]


def any_empty(words):
    """Whether a word is empty of those in registers; as unsigned numbers none is greater."""
    found = [Uint32(x[i]) for x in words for i in range(cute.size(x))]
    while len(found) > 1:  # as a tree, which has few steps that wait for each other
        rest = found[len(found) // 2 * 2 :]
        found = [cutlass.max(a, b) for a, b in zip(found[::2], found[1::2], strict=False)] + rest
    return found[0] == Uint32(EMPTY & 0xFFFFFFFF)
