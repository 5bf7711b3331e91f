"""List of all instruction units: programs and machines make one of each."""

from __future__ import annotations

from mla_var3.emulator.units.base import Unit
from mla_var3.emulator.units.budgets import Budgets
from mla_var3.emulator.units.bulk import Bulk
from mla_var3.emulator.units.cp_async import CpAsync
from mla_var3.emulator.units.launch_control import LaunchControl
from mla_var3.emulator.units.mma import Mma
from mla_var3.emulator.units.tcgen05.copies import TensorCopies
from mla_var3.emulator.units.tcgen05.memory import TensorMemory
from mla_var3.emulator.units.tcgen05.products import TensorProducts
from mla_var3.emulator.units.warps import Warps
from mla_var3.emulator.units.wgmma import WarpgroupProducts

#: In the order in which they start; a unit joins here.
UNITS: tuple[type[Unit], ...] = (
    *(Warps, Mma, CpAsync, Bulk, WarpgroupProducts, Budgets),
    *(TensorMemory, TensorProducts, TensorCopies, LaunchControl),
)
