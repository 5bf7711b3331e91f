"""Names of kernel versions: ``v0``, ``v1`` and so on."""

from __future__ import annotations


def number_of(version: str) -> int:
    """Number of a version, by which versions are ordered.

    Args:
        version: Such as ``v12``.

    Raises:
        ValueError: It is no name of a version.
    """
    return int(version.removeprefix("v"))
