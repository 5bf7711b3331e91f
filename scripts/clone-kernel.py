#!/usr/bin/env python3
"""Start a kernel version as a copy of another: ``scripts/clone-kernel.py mla_var6_plus v2 v5``."""

import sys

if __name__ == "__main__":
    try:
        from mla_var3.front import run

        run("mla_var3.app.clone:main")
    except ModuleNotFoundError as missing:
        print(
            f"error: the project is not installed for {sys.executable} (no module "
            f"{missing.name!r}): python -m pip install -c constraints.txt -e . "
            f"or, without installing it yourself, nox -s clone -- {' '.join(sys.argv[1:])}",
            file=sys.stderr,
        )
        sys.exit(2)
