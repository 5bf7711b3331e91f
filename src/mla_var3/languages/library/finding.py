"""Finds a peer library: as installed, or in a checkout that an environment variable names."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from mla_var3.errors import NotExecutableError

#: Digits of a commit, as versions that state one have them.
DIGITS = 7


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
        """Version by distribution, or by module where none is installed; empty where unknown.

        What pip installed from a repository also says its commit: ``1.0.0+9241ae3``.
        """
        package = self.module.partition(".")[0]
        if names := importlib.metadata.packages_distributions().get(package):
            found = importlib.metadata.distribution(names[0])
            return {names[0]: _with_commit(found.version, found.read_text("direct_url.json"))}
        said = getattr(sys.modules.get(package), "__version__", None)
        return {package: str(said)} if said else {}

    @property
    def hint(self) -> str:
        """One line on how to get it."""
        also = f", or let {self.checkout} name a checkout" if self.checkout else ""
        return self.install + also


def _with_commit(version: str, origin: str | None) -> str:
    """A version with the commit of pip's ``direct_url.json``, unless it states one itself."""
    commit = str(json.loads(origin or "{}").get("vcs_info", {}).get("commit_id", ""))[:DIGITS]
    return f"{version}+{commit}" if commit and "+" not in version else version
