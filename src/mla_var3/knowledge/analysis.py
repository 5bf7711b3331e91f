"""Interface ``Analysis``, by which a workload offers computed figures for pages to insert.

A workload may have one, as ``mla_var3.workloads.<key>.regimes``; ``find`` returns it, and the
directive ``analysis`` of a page names the figure.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Protocol, cast

from mla_var3.errors import UnknownNameError
from mla_var3.workloads import workloads


class FigureSpec(Protocol):
    """A computed figure: how it is asked for, what it shows, and how many arguments it takes."""

    @property
    def usage(self) -> str:
        """Name and arguments."""

    @property
    def description(self) -> str:
        """What the directive is replaced by."""

    @property
    def render(self) -> Callable[..., str]:
        """Makes the Markdown."""

    @property
    def arguments(self) -> int:
        """How many arguments it takes."""


class Analysis(Protocol):
    """What a module of analysis offers.

    Attributes:
        FIGURES: The figures by name.
        TABLES: Names of those that become a table.
    """

    FIGURES: Mapping[str, FigureSpec]
    TABLES: frozenset[str]

    def figure(self, name: str, *arguments: str) -> str:
        """A figure as Markdown; raises HyperMlaError when it cannot be made."""


@functools.cache
def analyses() -> dict[str, Analysis]:
    """The analyses by the key of their workload."""
    names = {key: f"mla_var3.workloads.{key}" for key in workloads()}
    return {
        key: cast(Analysis, importlib.import_module(f"{name}.regimes"))
        for key, name in names.items()
        if hasattr(importlib.import_module(name), "__path__")
        and importlib.util.find_spec(f"{name}.regimes") is not None
    }


def find(workload: str) -> Analysis:
    """The analysis of a workload.

    Raises:
        UnknownNameError: There is none.
    """
    if workload not in analyses():
        raise UnknownNameError("analysis of the workload", workload, list(analyses()))
    return analyses()[workload]
