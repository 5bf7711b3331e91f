"""Kernels by plain torch in all of these tests, but for those that ask for the emulator."""

from __future__ import annotations

import pytest

from mla_var3.serving import operators

from .stand_in import launched


@pytest.fixture
def by_reference(monkeypatch):
    """Plain torch in place of kernels; gives the kinds that were launched."""
    kinds = []

    def launch(kind, *values, written):
        kinds.append(kind)
        launched(kind, *values, written=written)

    monkeypatch.setattr(operators, "launch", launch)
    return kinds
