"""PTX instructions that the CuTe DSL does not wrap: one result, two, none, and one by condition."""

import torch
from cutlass import Int32, Int64, cute
from cutlass._mlir.dialects import llvm
from cutlass.cute.runtime import from_dlpack
from cutlass.cutlass_dsl import T, dsl_user_op

MASK = 0b11010010


@dsl_user_op
def bits_reversed(x: Int32, *, loc=None, ip=None) -> Int32:
    """The same by LLVM: result type, operands, text with $0 for the result, constraints, effect."""
    found = llvm.inline_asm(
        T.i32(), [Int32(x).ir_value(loc=loc, ip=ip)], "brev.b32 $0, $1;", "=r,r",
        has_side_effects=False, loc=loc, ip=ip,
    )  # fmt: skip
    return Int32(found)


@cute.kernel
def unwrapped(x: cute.Tensor, pairs: cute.Tensor, out: cute.Tensor):
    """Four instructions as text."""
    thread = cute.arch.thread_idx()[0]
    # One result, {$w0}, of a type; {$r0} and up are read.
    out[thread, 0] = cute.arch.inline_ptx(
        "lop3.b32 {$w0}, {$r0}, {$r1}, 0, 0x3c;",  # exclusive or
        write_only_types=[Int32],
        read_only_args=[x[thread], Int32(MASK)],
    )
    # Two results come as a tuple; doubled braces are PTX's own.
    at = Int64(cute.domain_offset((2 * thread,), pairs).iterator.toint())
    low, high = cute.arch.inline_ptx(
        "ld.relaxed.gpu.global.v2.b32 {{$w0}, {$w1}}, [{$r0}];",
        write_only_types=[Int32, Int32],
        read_only_args=[at],
    )
    out[thread, 1] = low + high
    out[thread, 2] = bits_reversed(x[thread])
    # No result, an effect alone, and that in some threads only.
    cute.arch.inline_ptx(
        "st.relaxed.gpu.global.b32 [{$r0}], {$r1};",
        read_only_args=[at, high],
        predicate=thread < 16,
    )


@cute.jit
def launch(x: cute.Tensor, pairs: cute.Tensor, out: cute.Tensor):
    """One warp."""
    unwrapped(x, pairs, out).launch(grid=(1, 1, 1), block=(32, 1, 1))


def main() -> None:
    """Compares with torch."""
    torch.manual_seed(0)
    x = torch.randint(0, 999, (32,), dtype=torch.int32).cuda()
    pairs = torch.randint(0, 99, (64,), dtype=torch.int32).cuda()
    before, out = pairs.clone(), torch.zeros(32, 3, dtype=torch.int32).cuda()
    launch(*(from_dlpack(t) for t in (x, pairs, out)))
    other = [int(f"{n:032b}"[::-1], 2) for n in x.tolist()]
    wanted = torch.stack([x ^ MASK, before[::2] + before[1::2]], 1)
    stored = torch.cat([before[1:32:2], before[32::2]])
    right = torch.equal(out[:, :2], wanted) and torch.equal(pairs[::2], stored)
    print("right:", right and [n % 2**32 for n in out[:, 2].tolist()] == other)


if __name__ == "__main__":
    main()
