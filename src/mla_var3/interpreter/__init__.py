"""Interpreter of cuTile kernels on the CPU: executes the typed IR that NVIDIA's front end makes.

``launch`` runs a kernel in place on CPU tensors and returns a ``LaunchReport``: counted FLOPs and
bytes, and ``Diagnostic``s with file and line. ``recording`` collects the reports of every launch in
a ``with`` block. Any kernel decorated with ``@ct.kernel`` runs, not only this project's::

    import cuda.tile as ct
    import torch

    from mla_var3.interpreter import launch

    @ct.kernel
    def double(x, y, TILE: ct.Constant[int]):
        i = ct.bid(0)
        ct.store(y, (i,), 2 * ct.load(x, (i,), (TILE,)))

    x, y = torch.arange(100.0), torch.empty(100)
    report = launch((4,), double, (x, y, 32))
    print(report.summary())
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mla_var3 import lazy
from mla_var3.interpreter import compat as _compat

if TYPE_CHECKING:
    from mla_var3.interpreter.launch_report import Diagnostic as Diagnostic
    from mla_var3.interpreter.launch_report import LaunchReport as LaunchReport
    from mla_var3.interpreter.launch_report import recording as recording
    from mla_var3.interpreter.launcher import launch as launch
    from mla_var3.interpreter.options import Options as Options
    from mla_var3.interpreter.options import using as using
    from mla_var3.interpreter.signature import kernel_signature as kernel_signature

_compat.check_installed()

#: Where each name lives.
_HOMES = {
    "launch": "launcher",
    "Options": "options",
    "using": "options",
    "Diagnostic": "launch_report",
    "LaunchReport": "launch_report",
    "recording": "launch_report",
    "kernel_signature": "signature",
}
__all__ = sorted(_HOMES)
__getattr__ = lazy.names_of(__name__, _HOMES)
