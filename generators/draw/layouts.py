"""Pictures of CuTe layouts, computed by our own layout algebra."""

from __future__ import annotations

from collections.abc import Callable, Mapping

FIGURES: Mapping[str, Callable[[], str]] = {}
