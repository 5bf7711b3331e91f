"""PTX emulator on the CPU: runs and checks CuTe DSL kernels and other kernels compiled to PTX.

``launch`` runs a kernel of a PTX text on numpy arrays; ``emulate`` is a context in which the
CuTe DSL's own compiled functions run on CPU tensors. Nothing here needs a GPU or a driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mla_var3 import lazy

if TYPE_CHECKING:
    from mla_var3.emulator.clusters import Launch as Launch
    from mla_var3.emulator.diagnostics import Diagnostic as Diagnostic
    from mla_var3.emulator.emulation import Emulation as Emulation
    from mla_var3.emulator.host import emulate as emulate
    from mla_var3.emulator.launcher import launch as launch
    from mla_var3.emulator.launcher import parse as parse
    from mla_var3.emulator.options import DEFAULT as DEFAULT
    from mla_var3.emulator.options import STRICT as STRICT
    from mla_var3.emulator.options import Model as Model
    from mla_var3.emulator.options import Options as Options
    from mla_var3.emulator.program import Program as Program

#: Where each name lives.
_HOMES = {
    "Emulation": "emulation",
    "emulate": "host",
    "Launch": "clusters",
    "launch": "launcher",
    "DEFAULT": "options",
    "STRICT": "options",
    "Model": "options",
    "Options": "options",
    "Program": "program",
    "parse": "launcher",
    "Diagnostic": "diagnostics",
}
__all__ = sorted(_HOMES)
__getattr__ = lazy.names_of(__name__, _HOMES)
