"""Executes cuTile kernels on the CPU, from the typed IR of NVIDIA's own front end.

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

from mla_var3.interpreter import compat as _compat

_compat.check()

from mla_var3.interpreter.launch import launch  # noqa: E402  (checked first)
from mla_var3.interpreter.options import Options, using  # noqa: E402
from mla_var3.interpreter.report import Diagnostic, LaunchReport, recording  # noqa: E402
from mla_var3.interpreter.signature import kernel_signature  # noqa: E402

__all__ = [
    "Diagnostic",
    "LaunchReport",
    "Options",
    "kernel_signature",
    "launch",
    "recording",
    "using",
]
