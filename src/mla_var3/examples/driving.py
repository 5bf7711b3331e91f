"""Imports fetched CUTLASS examples as modules, for our plans that run their kernels in place."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from mla_var3.errors import KnowledgeError, NotExecutableError
from mla_var3.examples import pin, store
from mla_var3.examples.catalog import Entry
from mla_var3.paths import repo_root


class Fetched(ModuleType):
    """A file of the fetched tree. It is read when a name of it is first asked for.

    A plan that drives an example can so be imported, planned and listed without the tree.

    Args:
        path: The file, below the folder of the examples.
        blob: git's id of the file that the plan was made for.
    """

    def __init__(self, path: str, blob: str) -> None:
        super().__init__(f"cutlass_example_{store.id_of(path).replace('-', '_')}")
        self.__file__ = str(repo_root() / pin.FOLDER / pin.EXAMPLES / path)
        self._path, self._blob, self._is_loaded = path, blob, False
        sys.modules[self.__name__] = self  # The DSL looks up there what it traces.

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self._is_loaded:
            raise AttributeError(f"{self._path} has no {name}")
        self.load()
        return getattr(self, name)

    def load(self) -> None:
        """Run the file's definitions, unless that was done.

        Raises:
            NotExecutableError: The tree is not fetched, is of another commit, or has another file.
        """
        if self._is_loaded:
            return
        try:
            entry = Entry(pin.tree(repo_root()), self._path)
            code = compile(entry.content, str(entry.file), "exec")
        except KnowledgeError as error:
            raise NotExecutableError(f"{self._path} cannot be driven: {error}") from error
        if entry.blob != self._blob:
            raise NotExecutableError(
                f"{self._path} of the fetched tree is blob {entry.blob[:12]}, and the design was "
                f"made for {self._blob[:12]}"
            )
        with _importable(entry.file.parent, entry.tree.examples):
            exec(code, vars(self))
        self._is_loaded = True

    def driven(self, host: Any, *arguments: Any) -> tuple[Any, tuple[Any, ...]]:
        """A host function that uses the file, and its arguments, once the file is there."""
        self.load()
        return host, arguments


@contextlib.contextmanager
def _importable(*folders: Path) -> Iterator[None]:
    """Folders that imports find modules in."""
    added = [str(folder) for folder in folders]
    sys.path[:0] = added
    try:
        yield
    finally:
        for folder in added:
            sys.path.remove(folder)


def device_function(name: str) -> Callable[..., None]:
    """Stands for a device function of an example by its name; its host function launches it."""

    def stand_in() -> None:
        raise NotExecutableError(f"{name} runs when the example's host function launches it")

    stand_in.__name__ = name
    return stand_in
