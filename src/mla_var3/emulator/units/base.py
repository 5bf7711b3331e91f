"""Base classes ``Unit`` and ``UnitText`` of instruction units: their interface to the emulator.

A unit executes instructions: bulk copies, products, shuffles. It joins by its class in
``units.registry.UNITS`` and needs nothing in the program, the machine or the scheduler. A lowering
(``lower/``) returns lines that call the unit by its name. What it has to know of the text before
any launch is a ``UnitText``, made once per program; the unit itself is made once per machine.

What the core offers to units, from ``self.machine``:

- ``clocks.issue`` and ``clocks.chain`` name events, ``clocks.finish`` says that a warp has waited
  for one, and ``sync.event`` and ``sync.complete`` are for what an mbarrier completes.
- ``shadow.unit_read`` and ``shadow.unit_write`` hold accesses to shared memory against events;
  ``memory_map.touch`` those to global memory.
- ``pending`` keeps registers that an operation still reads or writes.
- ``reporter.add`` reports, ``reporter.stop`` ends the launch, ``note`` is for the timeline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from mla_var3.gpuless.ptx import Instruction, Kernel

if TYPE_CHECKING:
    from mla_var3.emulator.fragments import Fragment
    from mla_var3.emulator.machine import Machine

#: Threads that run an instruction as one.
THREAD, WARP, WARPGROUP = 1, 32, 128


class UnitText:
    """What a unit takes from the text of a kernel; one for each program.

    Attributes:
        together: First parts of the opcodes that all lanes of a warp run together.
        blocking: Beginnings of opcodes at which threads may have to wait: ``Unit.block`` runs them.

    Args:
        kernel: The text.
        stops: Instructions at which a segment begins whatever any unit wants.
    """

    together: ClassVar[frozenset[str]] = frozenset()
    blocking: ClassVar[tuple[str, ...]] = ()

    def __init__(self, kernel: Kernel, stops: frozenset[int]) -> None:
        self.kernel = kernel

    @classmethod
    def lanes(cls, i: Instruction) -> int:
        """How many threads run an instruction as one: 1, 32 or 128."""
        return WARP if i.parts[0] in cls.together else THREAD

    def opens(self, i: Instruction) -> bool:
        """Whether a segment begins at an instruction; where lanes come together it has to."""
        return self.lanes(i) > THREAD

    def closes(self, i: Instruction) -> bool:
        """Whether a segment ends behind an instruction, so that ``pending`` is looked at again."""
        return False

    def registers(self) -> list[str]:
        """Registers that the unit reads or writes after the instruction that names them.

        Touching one is held against ``pending``. Their rows follow each other in this order.
        """
        return []

    def moved(self) -> list[str]:
        """Those that a plain ``mov`` touches too.

        It does not touch accumulators of wgmma: the compiler puts copies before the wait, and
        ptxas removes them.
        """
        return []

    def touches(self, i: Instruction) -> bool:
        """Whether an instruction of the unit itself counts as touching such registers."""
        return True


class Unit:
    """What executes instructions of a kind, for one cluster after the other.

    Attributes:
        name: What lowered code calls it.
        text: What it takes from the text of a kernel.
    """

    name: ClassVar[str]
    text: ClassVar[type[UnitText]] = UnitText

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def start(self) -> None:
        """A new cluster: nothing is in flight."""

    def block(self, f: Fragment, i: Instruction) -> bool:
        """Run a blocking instruction for threads whose guard is true.

        Either do it, add 1 to ``f.pc`` and return True, or set ``f.wait`` to the unit's name and
        return False: ``machine.scheduler.wake(name)`` lets all that wait so look again.
        """
        raise NotImplementedError

    def waits(self, f: Fragment, pc: int) -> str:
        """What threads in ``block`` wait for, in words for the report of a deadlock."""
        return f"the unit {self.name}"

    def finish(self) -> None:
        """The cluster has ended, and not in a deadlock: report what is left."""
