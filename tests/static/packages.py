"""Packages that pretend to be missing or of another version."""

from __future__ import annotations

import importlib.metadata

import pytest

from mla_var3.static import tools


def pretend(monkeypatch: pytest.MonkeyPatch, changes: dict[str, str | None]) -> None:
    """Have packages state another version, or, at None, be missing."""
    real = importlib.metadata.version

    def version(package: str) -> str:
        if package not in changes:
            return real(package)
        if (stated := changes[package]) is None:
            raise importlib.metadata.PackageNotFoundError(package)
        return stated

    monkeypatch.setattr(tools.importlib.metadata, "version", version)
