"""Finding somebody's library: installed, or a checkout that a variable names."""

from __future__ import annotations

import importlib
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

    @property
    def hint(self) -> str:
        """One line on how to get it."""
        also = f", or let {self.checkout} name a checkout" if self.checkout else ""
        return self.install + also
