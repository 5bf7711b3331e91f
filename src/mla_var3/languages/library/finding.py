"""Finds a peer library: as installed, or in a checkout that an environment variable names."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from mla_var3.errors import NotExecutableError


@dataclass(frozen=True)
class Requirement:
    """What a peer needs.

    Attributes:
        module: What is imported.
        install: One command that installs it.
        checkout: Variable that may name a checkout instead.
        folder: Folder of that checkout that is put on the search path.
    """

    module: str
    install: str
    checkout: str = ""
    folder: str = "src"

    def load(self) -> ModuleType:
        """The module.

        Raises:
            NotExecutableError: It cannot be imported; says why, and how to install it.
        """
        if self.checkout and (named := os.environ.get(self.checkout)):
            path = str(Path(named, self.folder))
            if path not in sys.path:
                sys.path.append(path)
        try:
            return importlib.import_module(self.module)
        except (ImportError, OSError, RuntimeError) as error:
            said = str(error).strip().splitlines() or [type(error).__name__]
            raise NotExecutableError(
                f"{self.module} is absent: {said[0]}; install it with: {self.hint}"
            ) from error

    def version(self) -> dict[str, str]:
        """Version by distribution, or by module where none is installed; empty where unknown."""
        package = self.module.partition(".")[0]
        if names := importlib.metadata.packages_distributions().get(package):
            return {names[0]: importlib.metadata.version(names[0])}
        said = getattr(sys.modules.get(package), "__version__", None)
        return {package: str(said)} if said else {}

    @property
    def hint(self) -> str:
        """One line on how to get it."""
        also = f", or let {self.checkout} name a checkout" if self.checkout else ""
        return self.install + also
