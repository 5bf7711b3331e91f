"""Maps compile targets such as ``sm_90a`` to the arch that each is a variant of."""

from __future__ import annotations


def base_arch(arch: str) -> str:
    """The arch that a variant is of: ``sm_90`` for ``sm_90a``, ``sm_100`` for ``sm_100f``."""
    return arch[:-1] if arch.endswith(("a", "f")) else arch
