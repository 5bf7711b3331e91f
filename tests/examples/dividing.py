"""Quotient and rest of a block's number, by four kinds of divisors."""

import tempfile

import cutlass
from cutlass import Int32, cute
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream


@cute.kernel
def plain(out: cute.Tensor, divisor: Int32):
    work = cute.arch.block_idx()[0]
    out[work], out[work + 1] = work // divisor, work % divisor


@cute.kernel
def prepared(out: cute.Tensor, divisor: cute.FastDivmodDivisorV2):
    work = cute.arch.block_idx()[0]
    out[work], out[work + 1] = divmod(work, divisor)


@cute.kernel
def constant(out: cute.Tensor, divisor: cutlass.Constexpr):
    work = cute.arch.block_idx()[0]
    out[work], out[work + 1] = work // divisor, work % divisor


@cute.jit
def by_plain(out, divisor: Int32, stream):
    plain(out, divisor).launch(grid=(64, 1, 1), block=(1, 1, 1), stream=stream)


@cute.jit
def by_prepared(out, divisor: Int32, stream):
    ready = cute.FastDivmodDivisorV2(divisor)
    prepared(out, ready).launch(grid=(64, 1, 1), block=(1, 1, 1), stream=stream)


@cute.jit
def by_constant(out, divisor: cutlass.Constexpr, stream):
    constant(out, divisor).launch(grid=(64, 1, 1), block=(1, 1, 1), stream=stream)


#: Host function and divisor, in the order of the page's table.
WAYS = {
    "an Int32": (by_plain, Int32(5)),
    "prepared": (by_prepared, Int32(5)),
    "a constant": (by_constant, 5),
    "a power of two": (by_constant, 8),
}


def compiled(host, divisor):
    """PTX and cubin of one way."""
    out = make_fake_compact_tensor(cutlass.Int32, (cutlass.sym_int(),))
    with tempfile.TemporaryDirectory() as folder:
        keep = f"--keep-ptx --keep-cubin --dump-dir={folder}"
        found = cute.compile(host, out, divisor, make_fake_stream(), options=keep)
        return found.__ptx__, found.__cubin__
