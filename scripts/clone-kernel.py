#!/usr/bin/env python3
"""Start a kernel version as a copy of another: ``scripts/clone-kernel.py mla_var6_plus_v4 v5``."""

from mla_var3.front import run

if __name__ == "__main__":
    run("mla_var3.app.clone:main")
