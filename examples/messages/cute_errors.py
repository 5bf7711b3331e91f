"""Kernels that the tracer of the CuTe DSL refuses, each beside its mended twin.

``python examples/messages/cute_errors.py`` compiles every one for sm_90a, without a GPU, and prints
what the DSL says of it. docs/messages/cute-dsl-errors.md explains them.
"""

from __future__ import annotations

import cutlass
from cutlass import Float32, Int32, cute
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream
from cutlass.cutlass_dsl import CuTeDSL


class Launch:
    """One block of 32 threads over a vector; each case below is a ``body``."""

    @cute.jit
    def __call__(self, x: cute.Tensor, stream):
        """Launch the kernel."""
        self.kernel(x).launch(grid=(4, 1, 1), block=(32, 1, 1), stream=stream)

    @cute.kernel
    def kernel(self, x: cute.Tensor):
        """Call the case with a thread's and a block's index, which are known at run time only."""
        self.body(x, cute.arch.thread_idx()[0], cute.arch.block_idx()[0])


class Scale:
    """An object without traced values whose method is traced."""

    @cute.jit
    def go(self, x: cute.Tensor, i: Int32):
        """Scale one element."""
        x[i] = x[i] * Float32(3)


class ObjectInBranch(Launch):
    """A method is called on a local name inside of a dynamic branch."""

    @cute.jit
    def body(self, x, i, block):
        """The branch would have to carry ``scale`` out."""
        scale = Scale()
        if block > 1:
            scale.go(x, i)


class ObjectOfSelf(Launch):
    """The same by way of ``self``, which a branch does not carry."""

    def __init__(self):
        self.scale = Scale()

    @cute.jit
    def body(self, x, i, block):
        """Nothing but ``self`` is used in the branch."""
        if block > 1:
            self.scale.go(x, i)


class UntracedCondition(Launch):
    """A helper without ``@cute.jit`` asks a value of run time."""

    def clear(self, x, i, block):
        """Plain Python: its ``if`` needs a bool now."""
        if block > 1:
            x[i] = Float32(0)

    @cute.jit
    def body(self, x, i, block):
        """Call the helper."""
        self.clear(x, i, block)


class TracedCondition(Launch):
    """The helper is traced, so that its ``if`` becomes a branch."""

    @cute.jit
    def clear(self, x, i, block):
        """A branch of the kernel."""
        if block > 1:
            x[i] = Float32(0)

    @cute.jit
    def body(self, x, i, block):
        """Call the helper."""
        self.clear(x, i, block)


class EarlyReturn(Launch):
    """A return under a condition of run time."""

    @cute.jit
    def body(self, x, i, block):
        """Blocks above 1 would leave here."""
        if block > 1:
            return
        x[i] = Float32(0)


class NoEarlyReturn(Launch):
    """The rest stands under the opposite condition."""

    @cute.jit
    def body(self, x, i, block):
        """Blocks above 1 do nothing."""
        if block <= 1:
            x[i] = Float32(0)


class GuardReturns(Launch):
    """CUDA's guard at the top of a kernel."""

    @cute.jit
    def body(self, x, i, block):
        """Threads past the end would leave here."""
        n = cute.size(x)
        if i >= n:
            return
        x[i] = x[i] * Float32(2)


class GuardStays(Launch):
    """The rest of the kernel stands under the opposite condition."""

    @cute.jit
    def body(self, x, i, block):
        """Threads past the end do nothing."""
        n = cute.size(x)
        if i < n:
            x[i] = x[i] * Float32(2)


class LoopBreaks(Launch):
    """A loop of run time that would end early."""

    @cute.jit
    def body(self, x, i, block):
        """The first negative number would end the loop."""
        n, total = block, Float32(0)
        for step in cutlass.range(n):
            if x[step] < 0:
                break
            total += x[step]
        x[i] = total


class LoopMasks(Launch):
    """The loop goes on, and its turns do nothing any more."""

    @cute.jit
    def body(self, x, i, block):
        """A number says whether the loop would still go on."""
        n, total = block, Float32(0)
        going = Int32(1)
        for step in cutlass.range(n):
            if x[step] < 0:
                going = Int32(0)
            if going == 1:
                total += x[step]
        x[i] = total


class LoopAsks(Launch):
    """The condition stands at the loop."""

    @cute.jit
    def body(self, x, i, block):
        """A `while` over values of run time."""
        n, total, step, going = block, Float32(0), Int32(0), Int32(1)
        while step < n and going == 1:
            if x[step] < 0:
                going = Int32(0)
            else:
                total += x[step]
            step += 1
        x[i] = total


class AtomChanges(Launch):
    """A copy atom of another type is made in a branch and used after it."""

    @cute.jit
    def body(self, x, i, block):
        """Both atoms have a type of their own."""
        atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), Float32)
        if block > 1:
            atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), Float32, num_bits_per_copy=32)
        cute.copy(atom, cute.make_tensor(x.iterator, 1), cute.make_tensor(x.iterator + 1, 1))


class AtomStays(Launch):
    """The choice of the atom is of compile time."""

    wide = True

    @cute.jit
    def body(self, x, i, block):
        """``const_expr`` chooses before anything is traced."""
        atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), Float32)
        if cutlass.const_expr(not self.wide):
            atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), Float32, num_bits_per_copy=32)
        cute.copy(atom, cute.make_tensor(x.iterator, 1), cute.make_tensor(x.iterator + 1, 1))


class NumberChanges(Launch):
    """A sum begins as the integer 0 and becomes a float in a loop of run time."""

    @cute.jit
    def body(self, x, i, block):
        """The loop carries ``total``, whose type differs after the first turn."""
        total = 0
        for step in cutlass.range(block):
            total = total + x[step]
        x[i] = total


class NumberStays(Launch):
    """The sum begins with the type that it keeps."""

    @cute.jit
    def body(self, x, i, block):
        """``Float32(0)`` is what the loop carries from the start."""
        total = Float32(0)
        for step in cutlass.range(block):
            total = total + x[step]
        x[i] = total


class BranchChanges(Launch):
    """A name begins as the integer 0 and becomes a float where a condition of run time holds."""

    @cute.jit
    def body(self, x, i, block):
        """The `if` hands on an integer on one path and a float on the other."""
        best = 0
        for step in cutlass.range(block):
            if x[step] > 0:
                best = x[step]
        x[i] = best


class BranchStays(Launch):
    """The name has the type from the start that it has on the changing path."""

    @cute.jit
    def body(self, x, i, block):
        """Both paths hand on a float."""
        best = Float32(0)
        for step in cutlass.range(block):
            if x[step] > 0:
                best = x[step]
        x[i] = best


#: The code that the DSL gives a case, its refused form and its mended one.
CASES = {
    "TYPE_DYNAMIC_EXPR_UNSUPPORTED": (ObjectInBranch, ObjectOfSelf),
    "PHASE_DYNAMIC_TO_STATIC_BOOL": (UntracedCondition, TracedCondition),
    "UNSUP_EARLY_EXIT": (EarlyReturn, NoEarlyReturn),
    "CONTAINER_STRUCTURE_CHANGED": (AtomChanges, AtomStays),
    "TYPE_UNSTABLE_JOIN": (NumberChanges, NumberStays),
}


class BornInBranch(Launch):
    """A name is first assigned in a branch of run time and read after it."""

    @cute.jit
    def body(self, x, i, block):
        """The branch has nothing to hand on where it is not taken."""
        if block > 1:
            value = x[i]
        x[i] = value


class BornBefore(Launch):
    """The name exists before the branch, with the type that it keeps."""

    @cute.jit
    def body(self, x, i, block):
        """Both paths hand on a float."""
        value = Float32(0)
        if block > 1:
            value = x[i]
        x[i] = value


#: A name that only one path defines has no code: a NameError with these words.
UNDEFINED = "NameError", "is not defined", (BornInBranch, BornBefore)
#: Further forms of a code that CUDA's habits lead to.
MORE = [
    ("UNSUP_EARLY_EXIT", (GuardReturns, GuardStays)),
    ("UNSUP_EARLY_EXIT", (LoopBreaks, LoopMasks)),
    ("UNSUP_EARLY_EXIT", (LoopBreaks, LoopAsks)),
]
#: The same code once more, with a branch inside of the loop.
IN_BRANCH = "TYPE_UNSTABLE_JOIN", (BranchChanges, BranchStays)


class Copied(Launch):
    """A thread's 128 values by a tiled copy of four at a time."""

    @cute.jit
    def body(self, x, i, block):
        """The thread's part of x is ((4,1),(32)); a case says how its registers are cut."""
        atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), Float32, num_bits_per_copy=128)
        load = cute.make_tiled_copy_tv(atom, cute.make_layout(32), cute.make_layout(4))
        mine = load.get_slice(i).partition_S(self.whole(x))
        values = self.registers(mine)
        cute.copy(load, mine, values)

    @cute.jit
    def whole(self, x):
        """The promise that x begins at a multiple of 16 bytes."""
        aligned = cute.make_tensor(x.iterator.align(16), x.layout)
        return aligned


class OtherRank(Copied):
    """As many values, in one mode."""

    @cute.jit
    def registers(self, mine):
        """128 against ((4,1),(32))."""
        values = cute.make_rmem_tensor(cute.size(mine), Float32)
        return values


class OtherRest(Copied):
    """As many values and modes, but mode 0 is not what one copy moves."""

    @cute.jit
    def registers(self, mine):
        """(2,64) against ((4,1),(32))."""
        values = cute.make_rmem_tensor((2, 64), Float32)
        return values


class SameModes(Copied):
    """Registers shaped as the part that they are loaded from."""

    @cute.jit
    def registers(self, mine):
        """((4,1),(32)) on both sides."""
        values = cute.make_fragment_like(mine)
        return values


class NotPromised(SameModes):
    """Nobody said that x begins at a multiple of 16 bytes."""

    @cute.jit
    def whole(self, x):
        """As it came: aligned as one element is."""
        return x


#: What ``cute.copy`` says of two sides of one size that do not match; ``SameModes`` is right.
COPIES = {
    "Expected source and destination tensors to have the same rank, but got 2 and 1": OtherRank,
    "Expected source and destination tensors to have the same size in mode-1, but got 32 and 64": (
        OtherRest
    ),
    "S ptr alignment (32 bits) does not meet requirement (128 bits) of atom": NotPromised,
}


def said(case: type[Launch]) -> str:
    """What the DSL says of a case; empty where it compiles."""
    CuTeDSL._get_dsl().envar.arch = "sm_90a"
    x = make_fake_compact_tensor(Float32, (4096,))
    try:
        cute.compile(case(), x, make_fake_stream(), options="--gpu-arch sm_90a")
    except Exception as error:  # noqa: BLE001 (each case raises a class of its own)
        return str(error)
    return ""


def main() -> None:
    """Print each code, and what is said of the refused and of the mended form."""
    for code, forms in [*CASES.items(), *MORE, IN_BRANCH, (UNDEFINED[0], UNDEFINED[2])]:
        for case in forms:
            first = (said(case).strip() or "compiles").splitlines()[0]
            print(f"{code}: {case.__name__}: {first}")
    for case in (*COPIES.values(), SameModes):
        first = (said(case).strip() or "compiles").splitlines()[0]
        print(f"cute.copy: {case.__name__}: {first}")


if __name__ == "__main__":
    main()
