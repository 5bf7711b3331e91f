"""HyperMLA, a workbench for MLA GPU kernels: its version, and errors told in one sentence."""

import sys

__version__ = "0.2.0"

if sys.argv[:1] == ["-m"]:
    # One of our commands starts, and Python loads the packages above it before the command itself.
    from mla_var3 import front

    sys.excepthook = front.excepthook
